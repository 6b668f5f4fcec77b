package page

import (
	"bytes"
	"io"
	"strings"

	"tenon.sh/tenon/internal/lab/textlayout"
)

// WriteText prints the page for a terminal of 100 columns.
func (p Page) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for _, text := range p.Lead {
		textlayout.Paragraph(&b, "", text)
	}
	for _, s := range p.Sections {
		if s.On != OnlyHTML && !s.empty() {
			s.write(&b)
		}
	}
	textlayout.List(&b, "Warnings", p.Warnings)
	textlayout.List(&b, "Caveats", p.Caveats)
	textlayout.List(&b, p.Short.Title, p.Short.Items)
	_, err := b.WriteTo(w)
	return err
}

// empty reports whether a terminal has nothing to show of the section.
func (s Section) empty() bool {
	return s.Text == "" && s.Legend == "" && len(s.Table.Rows) == 0 && len(s.Items) == 0 && len(s.Claims) == 0
}

func (s Section) write(b *bytes.Buffer) {
	b.WriteByte('\n')
	if s.Title != "" {
		textlayout.Paragraph(b, "", s.Title)
	}
	if s.Text != "" {
		textlayout.Paragraph(b, "", s.Text)
	}
	s.Table.write(b)
	for _, item := range s.Items {
		textlayout.Paragraph(b, "  - ", item)
	}
	verdict := 11
	for _, c := range s.Claims {
		verdict = max(verdict, textlayout.Columns(c.Verdict)+1)
	}
	for _, c := range s.Claims {
		textlayout.Paragraph(b, textlayout.Pad(strings.ToUpper(c.Verdict), -verdict), c.Statement+".")
		textlayout.Paragraph(b, strings.Repeat(" ", verdict), c.Explanation)
	}
	if s.Legend != "" {
		if len(s.Table.Rows) > 0 {
			b.WriteByte('\n')
		}
		textlayout.Paragraph(b, "", s.Legend)
	}
}

func (t Table) write(b *bytes.Buffer) {
	if len(t.Rows) == 0 {
		return
	}
	widths := t.widths(2)
	if textlayout.Total(widths) > textlayout.Width {
		widths = t.widths(1)
	}
	widths[0] = -widths[0]
	heads := make([]string, len(t.Heads))
	for i, h := range t.Heads {
		heads[i] = h.Text
	}
	var rows [][]string
	for _, r := range t.Rows {
		rows = append(rows, append([]string{r.Label}, r.Cells...))
	}
	textlayout.Table(b, widths, [][]string{heads}, rows)
}

// widths returns the widths of the columns, with at least gap spaces between two.
func (t Table) widths(gap int) []int {
	widths := make([]int, len(t.Heads))
	for i, h := range t.Heads {
		switch {
		case i == 0 && t.Label > 0:
			widths[i] = t.Label
			continue
		case i > 0 && t.Cell > 0:
			widths[i] = t.Cell
			continue
		}
		widths[i] = textlayout.Columns(h.Text)
		for _, r := range t.Rows {
			widths[i] = max(widths[i], textlayout.Columns(r.cell(i)))
		}
		if i > 0 {
			widths[i] += gap
		}
	}
	return widths
}

// cell returns the label, which is cell 0, or one of the other cells.
func (r Row) cell(i int) string {
	if i == 0 {
		return r.Label
	}
	return r.Cells[i-1]
}
