package published

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/textlayout"
)

// fewColumns is the largest number of columns for which a figure and its change fit
// into one line of a terminal.
const fewColumns = 4

// Text returns the table for a terminal: a figure with its change, and the interval
// of the change below it.
func (g Grid) Text() string {
	few := len(g.Columns) <= fewColumns
	label, width := 0, 0
	var body [][][]string // for each line its rows, each with a label and its cells
	for i, l := range g.Lines {
		rows := [][]string{append([]string{"  " + l.From}, make([]string, len(l.Cells))...)}
		for column, cell := range l.Cells {
			for j, part := range parts(cell, few) {
				if j == len(rows) {
					rows = append(rows, make([]string, 1+len(l.Cells)))
				}
				rows[j][1+column] = part
				width = max(width, textlayout.Columns(part))
			}
		}
		if i == 0 || g.Lines[i-1].Fact != l.Fact {
			rows = append([][]string{{l.Fact}}, rows...)
			label = max(label, min(textlayout.Columns(l.Fact), 24))
		}
		label = max(label, textlayout.Columns(rows[len(rows)-1][0]), textlayout.Columns("  "+l.From))
		body = append(body, rows)
	}
	width = max(width, min(28, (textlayout.Width-label)/max(len(g.Columns), 1)-2)) + 2
	var b bytes.Buffer
	if g.Where != "" {
		textlayout.Paragraph(&b, "", "In the document: "+g.Where+".")
	}
	heads := [][]string{make([]string, 1+len(g.Columns))}
	for i, c := range g.Columns {
		for j, part := range textlayout.Wrap(c, width-2) {
			if j == len(heads) {
				heads = append(heads, make([]string, 1+len(g.Columns)))
			}
			heads[j][1+i] = part
		}
	}
	widths := []int{-label}
	for range g.Columns {
		widths = append(widths, -width)
	}
	textlayout.Table(&b, widths, indent(heads), indent(slices.Concat(body...)))
	return b.String()
}

// indent puts a gap before each cell of the rows, but not before their labels.
func indent(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row[1:] {
			row[1+i] = "  " + row[1+i]
		}
	}
	return rows
}

// parts cuts a cell into the parts that stand below each other: the figure, its
// change, and the interval of the change.
func parts(cell string, few bool) []string {
	figure, change, has := strings.Cut(cell, " (")
	if !has {
		return textlayout.Wrap(cell, 28)
	}
	change, interval, _ := strings.Cut(strings.TrimSuffix(change, ")"), "; ")
	all := []string{figure + "  " + change}
	if !few {
		all = []string{figure, change}
	}
	if interval != "" {
		all = append(all, "  "+interval)
	}
	return all
}

// WriteText prints the tables of a document for a terminal.
func WriteText(w io.Writer, doc Document, tables []Grid) error {
	var b bytes.Buffer
	b.WriteString("\n")
	textlayout.Paragraph(&b, "", "Beside the document: "+doc.Title)
	textlayout.Paragraph(&b, "", doc.Address)
	for _, g := range tables {
		b.WriteString("\n" + g.Text())
	}
	b.WriteString("\n")
	textlayout.Paragraph(&b, "", "document: as printed. This run: the median over blocks, of jobs the mean; then the change to the first column, and its 95 % interval from runs within the same block. Compare the columns of a row, and not the figures of two machines.")
	_, err := b.WriteTo(w)
	return err
}
