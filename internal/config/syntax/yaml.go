// Package syntax parses the text of a YAML document, or of a JSON value, into nodes with their
// lines. The error for an invalid text contains the line of the mistake.
package syntax

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the maximum size of a text, in bytes. The rules of a node need
// only a small part of it, so a larger text is a mistake.
const MaxSize = 1 << 20

// An Error contains the place and the reason of invalid YAML.
type Error struct {
	// Line is the line of the mistake, counted from 1. It is 0 if the line is not
	// known.
	Line int
	// Problem names the mistake.
	Problem string
}

// YAML returns the root of the YAML document in data, or nil if there is no
// document. Two documents are an error.
func YAML(data []byte) (*yaml.Node, []Error) {
	if len(data) > MaxSize {
		return nil, []Error{{0, fmt.Sprintf("the file is longer than %d bytes", MaxSize)}}
	}
	if at, problem := findUnreadable(data); problem != "" {
		return nil, []Error{{lineAt(data, at), problem}}
	}
	lines := lineReader{rest: data}
	decoder := yaml.NewDecoder(&lines)
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, []Error{{0, "the file is empty: want apiVersion: tenon.sh/v1alpha1, kind: NodeConfig and rules"}}
	}
	if err != nil {
		return nil, []Error{locateError(data, err, lines.read)}
	}
	root := doc.Content[0]
	// A second document after --- must not be ignored silently.
	switch err := decoder.Decode(&more); {
	case err == nil:
		return root, []Error{{more.Line, "a second document starts here (---): want one"}}
	case !errors.Is(err, io.EOF):
		return root, []Error{locateError(data, err, lines.read)}
	}
	return root, nil
}

// A lineReader gives the YAML library one line at a time, and counts the lines.
// So the line of a failure is known.
type lineReader struct {
	rest []byte
	read int // number of lines read
}

// Read returns at most one line.
func (l *lineReader) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		return 0, io.EOF
	}
	line, _, whole := bytes.Cut(l.rest, []byte("\n"))
	if whole {
		line = l.rest[:len(line)+1]
	}
	n := copy(p, line)
	if l.rest = l.rest[n:]; n == len(line) {
		l.read++
	}
	return n, nil
}

// findUnreadable finds the first byte that is not UTF-8, or that is a control
// character which YAML forbids (YAML 1.2, 5.1). The library refuses such a
// text, too, but does not tell the line.
func findUnreadable(data []byte) (at int, problem string) {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return i, fmt.Sprintf("the byte 0x%02x is not UTF-8 text", data[i])
		case r == '\t' || r == '\n' || r == '\r' || r == 0x85 || r == 0xfeff && i == 0:
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff:
			return i, fmt.Sprintf("the control character %U may not stand in YAML", r)
		}
		i += n
	}
	return 0, ""
}

// lineAt returns the line number of data[at].
func lineAt(data []byte, at int) int { return 1 + bytes.Count(data[:at], []byte("\n")) }

// locateError converts an error of the YAML library. The library returns the
// line in which the incomplete construct begins, unless it is line 1. noticed
// is the last line that the library had read.
func locateError(data []byte, err error, noticed int) Error {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		return Error{lineAt(data, max(bytes.Index(data, []byte("*"+name)), 0)), NoAlias(name)}
	}
	line := 1
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, after, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, problem = n, after
		}
		if slices.Contains(countedFromZero, problem) {
			line++
		}
	}
	if hint := hints[problem]; hint != "" {
		problem += " (" + hint + ")"
	}
	if noticed > line {
		problem += fmt.Sprintf("; noticed in line %d at the latest", noticed)
	}
	return Error{line, "not YAML: " + problem}
}

// countedFromZero lists the messages of the library's parser. Their line
// numbers begin at 0. The line numbers of the library's scanner begin at 1
// (go.yaml.in/yaml/v3, decode.go: parser.fail).
var countedFromZero = []string{
	"did not find expected key", "did not find expected node content", "did not find expected '-' indicator",
	"did not find expected ',' or ']'", "did not find expected ',' or '}'", "did not find expected <document start>",
}

// hints maps the messages that tell no cause to their most likely cause.
var hints = map[string]string{
	"did not find expected alphabetic or numeric character": "a name that begins with * or & needs quotes",
	"found character that cannot start any token":           "text that begins with % @ or ` needs quotes; tabs cannot indent",
	"found a tab character that violates indentation":       "indent with spaces",
	"did not find expected key":                             "is this line, or one below it, indented too far or too little?",
	"mapping values are not allowed in this context":        "is this line indented too far, or are there two keys in it?",
	"could not find expected ':'":                           "a key ends in a colon and a space",
}

// NoAlias returns the problem text for the alias *name. Aliases are refused for
// two reasons: nested aliases of a few lines can expand to gigabytes, and a
// configuration does not need them.
func NoAlias(name string) string {
	return fmt.Sprintf("the alias *%s is not accepted: write the value out, or put it in quotes if it is a glob", Clip(name))
}

// maxShown is the number of characters of a text that Clip keeps.
const maxShown = 64

// Clip returns the beginning of s, at most 64 characters.
func Clip(s string) string {
	if r := []rune(s); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return s
}
