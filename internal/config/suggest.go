package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/config/spelling"
)

// foreignKeys lists keys of Koordinator's ConfigMap that the configuration file cannot contain.
var foreignKeys = []string{"system-config", "host-application-config", "cpu-normalization-config", "resource-amplification-config"}

// unknownKey returns the problem text for an unknown key. It also returns the
// key that was probably meant, or "".
func (p *parser) unknownKey(name string, known []key) (problem, meant string) {
	whole := reflect.TypeFor[file]()
	if p.lenient {
		whole = reflect.TypeFor[Strategies]()
	}
	if at := homes(whole, name); len(at) == 1 && !p.exact {
		if at[0] == "" {
			return "unknown key here: it belongs at the top level", ""
		}
		return "unknown key here: it belongs in " + at[0], ""
	}
	if slices.Contains(foreignKeys, name) && !p.lenient {
		return "unknown key: this part of Koordinator's ConfigMap is not for one node alone", ""
	}
	if near := spelling.Nearest(name, namesOf(known)); near != "" {
		return fmt.Sprintf("unknown key: did you mean %s?", near), near
	}
	if len(known) > 13 {
		return "unknown key: docs/configuration.md lists the keys that are valid here", ""
	}
	return "unknown key: want " + strings.Join(namesOf(known), ", "), ""
}

func namesOf(keys []key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return names
}

// maxKey is the maximum number of printed characters of a key.
const maxKey = 64
