package config

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

// document returns the root of the only YAML document in data. If there is
// none, it adds a fault and returns nil.
func (p *parser) document(data []byte) *yaml.Node {
	if len(data) > MaxSize {
		p.fault(0, "", fmt.Sprintf("the file is longer than %d bytes", MaxSize))
		return nil
	}
	if at, problem := unreadable(data); problem != "" {
		p.fault(lineAt(data, at), "", problem)
		return nil
	}
	lines := lineReader{rest: data}
	decoder := yaml.NewDecoder(&lines)
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		p.fault(0, "", "the file is empty: want apiVersion: tenon.sh/v1alpha1, kind: NodeConfig and rules")
		return nil
	}
	if err != nil {
		p.fault(syntax(data, err, lines.read))
		return nil
	}
	// A second document after --- must not be ignored silently.
	switch err := decoder.Decode(&more); {
	case err == nil:
		p.fault(more.Line, "", "a second document starts here (---): want one")
	case !errors.Is(err, io.EOF):
		p.fault(syntax(data, err, lines.read))
	}
	return doc.Content[0]
}

// A lineReader gives the YAML library one line at a time, to know how many
// lines the library had read when it failed.
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

// unreadable finds text that YAML forbids, and its position: bytes that are not
// UTF-8, and control characters (YAML 1.2, 5.1). The library also refuses them,
// but without a line.
func unreadable(data []byte) (at int, problem string) {
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

// lineAt returns the number of the line that holds data[at].
func lineAt(data []byte, at int) int { return 1 + bytes.Count(data[:at], []byte("\n")) }

// syntax converts an error of the library into a fault. The library names the
// line in which the incomplete construct begins, and no line if that is the
// first. noticed is the last line that the library had read.
func syntax(data []byte, err error, noticed int) (line int, field, problem string) {
	problem = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		return lineAt(data, max(bytes.Index(data, []byte("*"+name)), 0)), "", noAlias(name)
	}
	line = 1
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
	return line, "", "not YAML: " + problem
}

// countedFromZero lists the messages of the library's parser, which counts
// lines from 0. The library's scanner counts from 1 (go.yaml.in/yaml/v3,
// decode.go: parser.fail).
var countedFromZero = []string{
	"did not find expected key", "did not find expected node content", "did not find expected '-' indicator",
	"did not find expected ',' or ']'", "did not find expected ',' or '}'", "did not find expected <document start>",
}

// hints gives the most likely cause for messages that do not name it.
var hints = map[string]string{
	"did not find expected alphabetic or numeric character": "a name that begins with * or & needs quotes",
	"found character that cannot start any token":           "text that begins with % @ or ` needs quotes; tabs cannot indent",
	"found a tab character that violates indentation":       "indent with spaces",
	"did not find expected key":                             "is this line, or one below it, indented too far or too little?",
	"mapping values are not allowed in this context":        "is this line indented too far, or are there two keys in it?",
	"could not find expected ':'":                           "a key ends in a colon and a space",
}

// noAlias returns the problem text for the alias *name. Aliases are refused
// because a few lines of nested aliases expand to gigabytes, and such a file
// has nothing to repeat.
func noAlias(name string) string {
	return fmt.Sprintf("the alias *%s is not accepted: write the value out, or put it in quotes if it is a glob", clip(name))
}
