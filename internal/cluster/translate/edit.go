package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An edit is a change of one field. A field with the name from becomes the field
// at path; without a name, the field is new, has another value, or goes.
type edit struct {
	path   []any // keys and indexes, from the root of the document
	from   string
	value  any
	remove bool
}

// diff returns the edits that make after of before.
func diff(before, after any, path []any) []edit {
	switch b := after.(type) {
	case map[string]any:
		if a, is := before.(map[string]any); is {
			return diffMaps(a, b, path)
		}
	case []any:
		a, is := before.([]any)
		if !is || len(a) != len(b) {
			break
		}
		var all []edit
		for i := range b {
			all = append(all, diff(a[i], b[i], below(path, i))...)
		}
		return all
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return []edit{{path: path, value: after}}
}

func diffMaps(before, after map[string]any, path []any) []edit {
	gone := map[string]bool{}
	for key := range before {
		if _, stays := after[key]; !stays {
			gone[key] = true
		}
	}
	var all []edit
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if was, had := before[key]; had {
			all = append(all, diff(was, after[key], below(path, key))...)
			continue
		}
		e := edit{path: below(path, key), value: after[key]}
		for _, old := range slices.Sorted(maps.Keys(gone)) {
			if e.from == "" && isSameAmount(old, key) {
				e.from = old
				delete(gone, old)
			}
		}
		all = append(all, e)
	}
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		all = append(all, edit{path: below(path, key), remove: true})
	}
	return all
}

// below returns a path with one more step. It shares no memory with path.
func below(path []any, step any) []any { return append(slices.Clone(path), step) }

// isSameAmount reports whether two resources count the same: cpu and
// kubernetes.io/batch-cpu, or koordinator.sh/batch-cpu and the latter.
func isSameAmount(old, now string) bool {
	return strings.HasSuffix(now, "-"+old) || strings.Contains(old, "/") && now[strings.LastIndexByte(now, '/')+1:] == old[strings.LastIndexByte(old, '/')+1:]
}

// apply makes the change in an object, and makes what is missing on the path. It
// returns false if the object has another form than its pod, for example because
// a key is written in capital letters.
func (e edit) apply(object map[string]any) bool {
	var at any = object
	for _, step := range e.path[:len(e.path)-1] {
		switch s := step.(type) {
		case int:
			of, is := at.([]any)
			if !is || s >= len(of) {
				return false
			}
			at = of[s]
		case string:
			of, is := at.(map[string]any)
			if !is {
				return false
			}
			if of[s] == nil {
				of[s] = map[string]any{}
			}
			at = of[s]
		}
	}
	switch last := e.path[len(e.path)-1].(type) {
	case int:
		of, is := at.([]any)
		if !is || last >= len(of) {
			return false
		}
		of[last] = e.value
	case string:
		of, is := at.(map[string]any)
		if _, has := of[cmp.Or(e.from, last)]; !is || !has && (e.remove || e.from != "") {
			return false
		}
		delete(of, e.from)
		if e.remove {
			delete(of, last)
			break
		}
		of[last] = e.value
	}
	return true
}

// applyTo makes the change in a YAML document. A renamed field keeps its place
// and its comments. The result is false if the document has another form than its
// object, for example because it merges mappings (<<).
func (e edit) applyTo(n *yaml.Node) bool {
	for _, step := range e.path[:len(e.path)-1] {
		if n = descend(target(n), step); n == nil {
			return false
		}
	}
	n = target(n)
	switch last := e.path[len(e.path)-1].(type) {
	case int:
		if n.Kind != yaml.SequenceNode || last >= len(n.Content) {
			return false
		}
		n.Content[last] = nodeOf(e.value)
	case string:
		if !asMapping(n) {
			return false
		}
		i := indexOf(n, cmp.Or(e.from, last))
		switch {
		case i < 0 && (e.remove || e.from != ""):
			return false
		case e.remove:
			n.Content = slices.Delete(n.Content, i, i+2)
		case i < 0:
			n.Content = append(n.Content, nodeOf(last), nodeOf(e.value))
		default:
			key, was, now := n.Content[i], n.Content[i+1], nodeOf(e.value)
			if e.from != "" {
				key.Value, key.Style, key.Tag = last, 0, "!!str"
			}
			now.HeadComment, now.LineComment, now.FootComment = was.HeadComment, was.LineComment, was.FootComment
			n.Content[i+1] = now
		}
	}
	return true
}

// descend returns the node one step below n. It makes a missing mapping. It returns
// nil if n has no such node.
func descend(n *yaml.Node, step any) *yaml.Node {
	switch s := step.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && s < len(n.Content) {
			return n.Content[s]
		}
	case string:
		if !asMapping(n) {
			return nil
		}
		i := indexOf(n, s)
		if i < 0 {
			n.Content = append(n.Content, nodeOf(s), &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"})
			i = len(n.Content) - 2
		}
		return n.Content[i+1]
	}
	return nil
}

// target returns the node to which an alias refers.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// asMapping reports whether a node is a mapping. It makes an empty mapping of a
// field without a value.
func asMapping(n *yaml.Node) bool {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		n.Kind, n.Tag, n.Value, n.Style = yaml.MappingNode, "!!map", "", 0
	}
	return n.Kind == yaml.MappingNode
}

// indexOf returns the index of a key in the content of a mapping, or -1.
func indexOf(n *yaml.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// nodeOf returns a value of JSON as YAML.
func nodeOf(value any) *yaml.Node {
	scalar := func(tag, text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text} }
	switch v := value.(type) {
	case string:
		return scalar("!!str", v)
	case bool:
		if v {
			return scalar("!!bool", "true")
		}
		return scalar("!!bool", "false")
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return scalar("!!float", v.String())
		}
		return scalar("!!int", v.String())
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			n.Content = append(n.Content, nodeOf(item))
		}
		return n
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, nodeOf(key), nodeOf(v[key]))
		}
		return n
	}
	return scalar("!!null", "null")
}

// printYAML prints a document with the indentation that it has.
func printYAML(doc *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	l := indentOf(doc.Content[0], indentation{})
	if l.step == 0 {
		l.step = 2
	}
	e.SetIndent(l.step)
	if l.listed && l.flush {
		e.CompactSeqIndent()
	}
	if err := e.Encode(doc); err != nil {
		return nil, err
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// An indentation says how a document is indented: by how many columns, and
// whether the items of a list begin below the key of the list.
type indentation struct {
	step          int // 0: not known
	listed, flush bool
}

// indentOf looks for the first field with fields in block style, and for the
// first list.
func indentOf(n *yaml.Node, l indentation) indentation {
	if n.Style&yaml.FlowStyle != 0 || l.step > 0 && l.listed {
		return l
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case value.Style&yaml.FlowStyle != 0 || len(value.Content) == 0 || value.Line == key.Line:
		case value.Kind == yaml.MappingNode && l.step == 0:
			l.step = value.Column - key.Column
		case value.Kind == yaml.SequenceNode && !l.listed:
			l.listed, l.flush = true, value.Column == key.Column
		}
	}
	for _, below := range n.Content {
		l = indentOf(below, l)
	}
	return l
}

// printJSON prints an object with the indentation of a text.
func printJSON(object map[string]any, like []byte) ([]byte, error) {
	indent := ""
	if _, rest, lines := bytes.Cut(bytes.TrimSpace(like), []byte("\n")); lines {
		indent = string(rest[:len(rest)-len(bytes.TrimLeft(rest, " \t"))])
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(object); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
