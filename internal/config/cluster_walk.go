package config

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readMapping reads a JSON mapping at a path. An unknown key causes a notice
// and not a fault, because it may belong to a newer version or to another
// program that uses the ConfigMap.
func readMapping[T any](n *yaml.Node, path string) (T, *parser) {
	var v T
	p := &parser{lines: map[string]int{path: n.Line}, lenient: true}
	if !isNull(n) {
		p.value(n, path, key{}, reflect.ValueOf(&v).Elem())
	}
	return v, p
}

// bad returns the fields with a fault.
func (p *parser) bad() map[string]bool {
	bad := map[string]bool{}
	for _, f := range p.faults {
		bad[f.Field] = true
	}
	return bad
}

// pick removes a key from a mapping and returns its value; nil: not found.
func pick(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			value := mapping.Content[i+1]
			mapping.Content = append(mapping.Content[:i:i], mapping.Content[i+2:]...)
			return value
		}
	}
	return nil
}

// moved replaces the path from at the beginning of a field by the path to.
func moved(field, from, to string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(field, from), ".")
	if rest == "" || strings.HasPrefix(rest, "[") {
		return to + rest
	}
	return join(to, rest)
}

// unordered returns the contradictions between values of s.
func (s Strategies) unordered() []Fault {
	c := checker{bad: map[string]bool{}}
	c.order(s)
	return c.faults
}

// suggest returns the problem text for an unknown name.
func suggest(name string, known []string) string {
	keys := make([]key, len(known))
	for i, k := range known {
		keys[i] = key{name: k}
	}
	if near := nearest(name, keys); near != "" {
		return "unknown key: did you mean " + near + "?"
	}
	return "unknown key: this version knows " + strings.Join(known, ", ")
}
