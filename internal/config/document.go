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

// document returns the root of the one YAML document in data; nil, with a
// fault, if there is none.
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
	// What stands behind --- would pass unseen if only the first document were
	// read.
	switch err := decoder.Decode(&more); {
	case err == nil:
		p.fault(more.Line, "", "a second document starts here (---): want one")
	case !errors.Is(err, io.EOF):
		p.fault(syntax(data, err, lines.read))
	}
	return doc.Content[0]
}

// A lineReader gives the library one line at a time, so that it is known how
// far it had read when it gave up.
type lineReader struct {
	rest []byte
	read int // lines
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

// unreadable returns what no YAML text may hold, and where: bytes that are not
// UTF-8, and control characters (YAML 1.2, 5.1). The library refuses them too,
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

// syntax turns an error of the library into a fault. The library names the
// line in which that begins which it could not read to its end, and none if
// that is the first; noticed is the line up to which it had read.
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

// countedFromZero are the messages of the library's parser, which counts lines
// from 0; its scanner counts from 1 (go.yaml.in/yaml/v3, decode.go: parser.fail).
var countedFromZero = []string{
	"did not find expected key", "did not find expected node content", "did not find expected '-' indicator",
	"did not find expected ',' or ']'", "did not find expected ',' or '}'", "did not find expected <document start>",
}

// hints say what most likely causes a message that does not.
var hints = map[string]string{
	"did not find expected alphabetic or numeric character": "a name that begins with * or & needs quotes",
	"found character that cannot start any token":           "text that begins with % @ or ` needs quotes; tabs cannot indent",
	"found a tab character that violates indentation":       "indent with spaces",
	"did not find expected key":                             "is this line, or one below it, indented too far or too little?",
	"mapping values are not allowed in this context":        "is this line indented too far, or are there two keys in it?",
	"could not find expected ':'":                           "a key ends in a colon and a space",
}

// noAlias says why *name is refused: an alias of aliases is a few lines that
// stand for gigabytes, and a file of this kind has nothing to repeat.
func noAlias(name string) string {
	return fmt.Sprintf("the alias *%s is not accepted: write the value out, or put it in quotes if it is a glob", clip(name))
}
