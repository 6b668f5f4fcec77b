// Package table prints values as tables and lists: a column is a name and a
// function from a record to its text.
package table

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// A Column is a value that a table shows of each record: its name, its unit, and
// its text. A table that prints units puts them beside the name.
type Column[R any] struct {
	Name string
	Unit string
	Text func(R) string
}

// Write writes the names of the columns and a row for each record, each after an
// indent.
func Write[R any](b *strings.Builder, indent string, columns []Column[R], records []R) {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	align(b, indent, append([]string{strings.Join(names, "\t")}, rowsOf(columns, records)...))
}

// WriteRows is like Write, without the names of the columns.
func WriteRows[R any](b *strings.Builder, indent string, columns []Column[R], records []R) {
	align(b, indent, rowsOf(columns, records))
}

func rowsOf[R any](columns []Column[R], records []R) []string {
	var rows []string
	for _, r := range records {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.Text(r)
		}
		rows = append(rows, strings.Join(cells, "\t"))
	}
	return rows
}

// Text returns what Write writes, without an indent.
func Text[R any](columns []Column[R], records []R) string {
	var b strings.Builder
	Write(&b, "", columns, records)
	return b.String()
}

// WriteFacts writes the columns of one record below each other: the name and the
// text. A column without text is left out. A text of several lines has its name in
// each of them.
func WriteFacts[R any](b *strings.Builder, columns []Column[R], record R) {
	var rows []string
	for _, c := range columns {
		if text := c.Text(record); text != "" {
			for line := range strings.SplitSeq(text, "\n") {
				rows = append(rows, c.Name+"\t"+line)
			}
		}
	}
	align(b, "", rows)
}

// align writes rows whose cells tabs separate, so that the columns are aligned.
func align(b *strings.Builder, indent string, rows []string) {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, indent+row)
	}
	_ = w.Flush() // a write to memory cannot fail
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// Lines returns a text with a line for each record, for WriteFacts.
func Lines[R any](records []R, text func(R) string) string {
	lines := make([]string, len(records))
	for i, r := range records {
		lines[i] = text(r)
	}
	return strings.Join(lines, "\n")
}

// OrDash returns a text, or a dash for an empty one.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Count prints a number and a noun, such as "2 CPUs".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
