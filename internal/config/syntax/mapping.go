package syntax

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Take removes a key from a mapping and returns its value, or nil if there is
// no such key.
func Take(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			value := mapping.Content[i+1]
			mapping.Content = append(mapping.Content[:i:i], mapping.Content[i+2:]...)
			return value
		}
	}
	return nil
}

// TakeRepeated removes each entry of a mapping whose key is in names and stands
// before in the mapping. It calls repeated with the first and the later key.
func TakeRepeated(mapping *yaml.Node, names []string, repeated func(first, again *yaml.Node)) {
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(mapping.Content); {
		name := mapping.Content[i]
		switch known := slices.Contains(names, name.Value); {
		case known && first[name.Value] != nil:
			repeated(first[name.Value], name)
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			continue
		case known:
			first[name.Value] = name
		}
		i += 2
	}
}

// Spell corrects the spelling of keys in a mapping, because Koordinator ignores the
// case of keys. If a key differs only by case from exactly one known name, Spell
// replaces the key by that name. It calls renamed for each replaced key.
func Spell(mapping *yaml.Node, known []string, renamed func(name *yaml.Node, to string)) {
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
