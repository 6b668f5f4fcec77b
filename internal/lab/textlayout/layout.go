// Package textlayout lays text out for a terminal.
package textlayout

import (
	"bytes"
	"fmt"
	"strings"
)

// Width is the width of the terminal in columns.
const Width = 100

// Pad fills s with spaces up to the width, in columns. It adds the spaces on
// the left. If width is negative, it adds them on the right.
func Pad(s string, width int) string {
	if width < 0 {
		return s + strings.Repeat(" ", max(-width-Columns(s), 0))
	}
	return strings.Repeat(" ", max(width-Columns(s), 1)) + s
}

// Table writes the heads of columns, a line, and the rows. The width of a column is that
// of Pad: a negative one means that its cells begin at the left.
func Table(b *bytes.Buffer, widths []int, heads, rows [][]string) {
	write := func(rows [][]string) {
		for _, row := range rows {
			text := ""
			for i, cell := range row {
				text += Pad(cell, widths[i])
			}
			b.WriteString(strings.TrimRight(text, " ") + "\n")
		}
	}
	write(heads)
	b.WriteString(strings.Repeat("-", Total(widths)) + "\n")
	write(rows)
}

// Total returns the width of a table.
func Total(widths []int) (sum int) {
	for _, w := range widths {
		sum += max(w, -w)
	}
	return sum
}

// Paragraph writes head and then text. It wraps the text, and indents the
// following lines to the width of head.
func Paragraph(b *bytes.Buffer, head, text string) {
	indent := strings.Repeat(" ", Columns(head))
	for i, l := range Wrap(text, Width-Columns(head)) {
		if i > 0 {
			head = indent
		}
		b.WriteString(strings.TrimRight(head+l, " ") + "\n")
	}
}

// List prints items below a title.
func List(b *bytes.Buffer, title string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, "\n%s\n", title)
	}
	for _, item := range items {
		Paragraph(b, "  - ", item)
	}
}

// Wrap breaks text at spaces into lines of at most width columns. A percent
// sign stays with its number.
func Wrap(text string, width int) []string {
	var words []string
	for _, word := range strings.Fields(text) {
		if n := len(words); n > 0 && strings.HasPrefix(word, "%") {
			words[n-1] += " " + word
		} else {
			words = append(words, word)
		}
	}
	var lines []string
	line := ""
	for _, word := range words {
		switch {
		case line == "":
			line = word
		case Columns(line)+1+Columns(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// Columns returns the width of s in a terminal, in which a Chinese character has two
// columns.
func Columns(s string) (n int) {
	const firstWide, lastWide = 0x2E80, 0xFFDC
	for _, r := range s {
		if n++; r >= firstWide && r <= lastWide {
			n++
		}
	}
	return n
}

// Plural prints a number with its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
