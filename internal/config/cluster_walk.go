package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/config/spelling"
)

// readMapping reads the JSON mapping at a path. An unknown key causes a notice instead of a
// fault: it may belong to a newer version, or to another program that uses the ConfigMap.
func readMapping[T any](n *yaml.Node, path string) (T, *parser) {
	var v T
	p := &parser{lines: map[string]int{path: n.Line}, lenient: true}
	if !isNull(n) {
		p.value(n, path, key{}, reflect.ValueOf(&v).Elem())
	}
	return v, p
}

// faultyFields returns the fields with a fault.
func (p *parser) faultyFields() map[string]bool {
	bad := map[string]bool{}
	for _, f := range p.faults {
		bad[f.Field] = true
	}
	return bad
}

// pick removes a key from a mapping and returns its value, or nil if there is
// no such key.
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

// movePath replaces the prefix oldPath of a field's path by newPath.
func movePath(field, oldPath, newPath string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(field, oldPath), ".")
	if rest == "" || strings.HasPrefix(rest, "[") {
		return newPath + rest
	}
	return join(newPath, rest)
}

// spell corrects the spelling of keys in a mapping, because Koordinator ignores the
// case of keys. If a key differs only by case from exactly one known name, spell
// replaces the key by that name. It calls renamed for each replaced key.
func spell(mapping *yaml.Node, known []string, renamed func(name *yaml.Node, to string)) {
	written := map[string]bool{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		written[mapping.Content[i].Value] = true
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name := mapping.Content[i]
		if name.Kind != yaml.ScalarNode || slices.Contains(known, name.Value) {
			continue
		}
		fits := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.EqualFold(k, name.Value) })
		if len(fits) == 1 && !written[fits[0]] {
			renamed(name, fits[0])
			name.Value, written[fits[0]] = fits[0], true
		}
	}
}

// renamedTo returns the text of the notice for a key that spell has renamed.
func renamedTo(name string) string { return "counts as " + name + ": want this spelling" }

// Suggest returns the problem text for an unknown key. It contains the known
// key that was probably meant.
func Suggest(name string, known []string) string {
	if near := spelling.Nearest(name, known); near != "" {
		return "unknown key: did you mean " + near + "?"
	}
	return "unknown key: this version knows " + strings.Join(known, ", ")
}
