package syntax

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxDepth is the maximum nesting of a JSON text. Valid texts have fewer than 8 levels.
const maxDepth = 64

// JSON returns the root of a JSON text, such as the value of a key in
// Koordinator's ConfigMap. Its nodes are like those of a YAML document. Line 1
// is the first line of the text.
func JSON(text string) (*yaml.Node, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("the text is longer than %d bytes", MaxSize)
	}
	text = strings.TrimPrefix(text, byteOrderMark)
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("not JSON: the text is empty")
	}
	// The token decoder also accepts some texts that are not JSON.
	var whole json.RawMessage
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		return nil, jsonError(text, err)
	}
	r := jsonReader{text: text, tokens: json.NewDecoder(strings.NewReader(text)), line: 1}
	r.tokens.UseNumber()
	return r.value(0)
}

// byteOrderMark is a character that some editors write at the begin of a file.
const byteOrderMark = "\ufeff"

// jsonError returns an error for a text that is not JSON. For a text with
// several lines, the error contains the line number.
func jsonError(text string, err error) error {
	at := len(text)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at = min(int(syntax.Offset), at)
		err = nameCharacter(text, at-1, err)
	}
	if strings.Contains(strings.TrimSpace(text), "\n") {
		return fmt.Errorf("not JSON: line %d: %w", 1+strings.Count(text[:at], "\n"), err)
	}
	return fmt.Errorf("not JSON: %w", err)
}

// nameCharacter returns err with the whole character at a byte of the text.
// Package encoding/json names only the first byte of a character, as if it were
// one of Latin-1: a byte order mark is 'ï' there.
func nameCharacter(text string, at int, err error) error {
	if at < 0 || at >= len(text) || text[at] < utf8.RuneSelf {
		return err
	}
	r, n := utf8.DecodeRuneInString(text[at:])
	_, where, found := strings.Cut(err.Error(), "' ")
	switch {
	case !found:
		return err
	case r == utf8.RuneError && n == 1:
		return fmt.Errorf("the byte 0x%02x is not UTF-8 text, %s", text[at], where)
	case !unicode.IsGraphic(r) || unicode.IsSpace(r):
		return fmt.Errorf("invalid character %U %s", r, where)
	}
	return fmt.Errorf("invalid character '%c' (%U) %s", r, r, where)
}

// A jsonReader builds nodes from tokens. It records the lines of the nodes.
type jsonReader struct {
	text   string
	tokens *json.Decoder
	seen   int // bytes of text whose lines are counted
	line   int
}

// next returns the next token as a node without content. For a closing bracket,
// the kind of the node is 0.
func (r *jsonReader) next() (*yaml.Node, error) {
	token, err := r.tokens.Token()
	if err != nil {
		return nil, jsonError(r.text, err)
	}
	end := int(r.tokens.InputOffset())
	r.line += strings.Count(r.text[r.seen:end], "\n")
	r.seen = end
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch v := token.(type) {
	case json.Delim:
		n.Kind = map[json.Delim]yaml.Kind{'{': yaml.MappingNode, '[': yaml.SequenceNode}[v]
		n.Tag = map[json.Delim]string{'{': "!!map", '[': "!!seq"}[v]
	case string:
		n.Tag, n.Value = "!!str", v
	case json.Number:
		n.Tag, n.Value = "!!int", v.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// value returns the next value. depth is the number of mappings and lists
// around it.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	n, err := r.next()
	if err != nil || n.Kind == yaml.ScalarNode {
		return n, err
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("line %d: nested deeper than %d", n.Line, maxDepth)
	}
	for r.tokens.More() {
		inner, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, inner)
	}
	_, err = r.next() // the closing bracket
	return n, err
}
