// Package textlayout lays text out for a terminal.
package textlayout

import (
	"bytes"
	"fmt"
	"strings"
)

// Width is the width of the terminal in columns.
const Width = 100

// Pad fills s with spaces up to the width, in characters. It adds the spaces on
// the left. If width is negative, it adds them on the right.
func Pad(s string, width int) string {
	if width < 0 {
		return s + strings.Repeat(" ", max(-width-Runes(s), 0))
	}
	return strings.Repeat(" ", max(width-Runes(s), 1)) + s
}

// Paragraph writes head and then text. It wraps the text, and indents the
// following lines to the width of head.
func Paragraph(b *bytes.Buffer, head, text string) {
	indent := strings.Repeat(" ", Runes(head))
	for i, l := range Wrap(text, Width-Runes(head)) {
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

// Wrap breaks text at spaces into lines of at most width characters. A percent
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
		case Runes(line)+1+Runes(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// Runes returns the number of characters of s.
func Runes(s string) int { return len([]rune(s)) }

// Plural prints a number with its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
