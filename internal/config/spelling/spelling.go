// Package spelling finds the name that a misspelt name probably means.
package spelling

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxCompared is the maximum length, in characters, of the names that are compared.
const maxCompared = 64

// minPrefix is the minimum length, in characters, of a name that may be the
// beginning of a key in Nearest.
const minPrefix = 4

// Nearest returns the known key that name probably means, or "". name may be
// the beginning of a key. Some of its letters may be wrong or missing, but at
// most one letter in three.
func Nearest(name string, known []string) string {
	best, least := "", maxCompared
	if len(name) > maxCompared {
		return ""
	}
	begun := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(normalize(k), normalize(name)) })
	if len(begun) == 1 && len(name) >= minPrefix {
		return begun[0] // only an ending, such as Percent, is missing
	}
	for _, k := range known {
		d := levenshtein.ComputeDistance(normalize(name), normalize(k))
		if d < least && d <= max(len(name), len(k))/3 {
			best, least = k, d
		}
	}
	return best
}

// normalize removes case and separators from a key, because users often get them wrong.
func normalize(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}
