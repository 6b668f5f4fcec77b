package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// foreign lists the keys of Koordinator's ConfigMap that a file cannot have.
var foreign = []string{"system-config", "host-application-config", "cpu-normalization-config", "resource-amplification-config"}

// unknownKey returns the problem text for an unknown key, and the key that was
// probably meant, or "".
func (p *parser) unknownKey(name string, known []key) (problem, meant string) {
	whole := reflect.TypeFor[file]()
	if p.lenient {
		whole = reflect.TypeFor[Strategies]()
	}
	if at := homes(whole, name); len(at) == 1 {
		if at[0] == "" {
			return "unknown key here: it belongs at the top level", ""
		}
		return "unknown key here: it belongs in " + at[0], ""
	}
	if slices.Contains(foreign, name) && !p.lenient {
		return "unknown key: this part of Koordinator's ConfigMap is not for one node alone", ""
	}
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("unknown key: did you mean %s?", near), near
	}
	if len(known) > 10 {
		return "unknown key: docs/configuration.md lists the keys that are valid here", ""
	}
	var names []string
	for _, k := range known {
		names = append(names, k.name)
	}
	return "unknown key: want " + strings.Join(names, ", "), ""
}

// nearest returns the known key of which name is probably a misspelling, with
// at most every third letter wrong or missing. It returns "" if there is none.
func nearest(name string, known []key) string {
	best, least := "", maxKey
	if len(name) > maxKey {
		return ""
	}
	for _, k := range known {
		d := levenshtein.ComputeDistance(plain(name), plain(k.name))
		if d < least && d <= max(len(name), len(k.name))/3 {
			best, least = k.name, d
		}
	}
	return best
}

// maxKey is the number of characters of a key that are compared or printed.
const maxKey = 64

// plain returns a key without case and separators, which are often wrong.
func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}
