package page

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
)

// WriteCSV writes the tables of the page, a line for each cell: the title of its section,
// the label and the unit of its row, the head of its column, and its text. A row that
// belongs to the one above has the label of that one before its own.
func (p Page) WriteCSV(w io.Writer) error {
	lines := [][]string{{"section", "row", "unit", "column", "text"}}
	for _, s := range p.Sections {
		above := ""
		for _, r := range s.Table.Rows {
			label := strings.TrimSpace(r.Label)
			if label == r.Label {
				above = label
			} else {
				label = above + ", " + label
			}
			for i, text := range r.Cells {
				if text != "" {
					lines = append(lines, []string{s.Title, label, r.Unit, s.Table.Heads[i+1].Text, text})
				}
			}
		}
	}
	out := csv.NewWriter(w)
	if err := out.WriteAll(lines); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}
