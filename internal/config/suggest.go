package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// foreign are keys of Koordinator's ConfigMap that have no part in a node's
// own file.
var foreign = []string{"system-config", "host-application-config", "cpu-normalization-config", "resource-amplification-config"}

// unknownKey says what to do about a key that is not among those that may
// stand in its mapping, and which of those was most likely meant, if any.
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
		return "unknown key: docs/configuration.md lists those that may stand here", ""
	}
	var names []string
	for _, k := range known {
		names = append(names, k.name)
	}
	return "unknown key: want " + strings.Join(names, ", "), ""
}

// nearest returns the known key that name is most likely a misspelling of: at
// most every third letter wrong or missing. It is empty if none is.
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

// maxKey is how many letters of a key are looked at.
const maxKey = 64

// plain is a key without what people get wrong first: case and separators.
func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}
