// Package spelling finds the name that a misspelt name probably means.
package spelling

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxCompared is the maximum length, in characters, of the names that are compared.
const maxCompared = 64

// maxTypo is the maximum number of wrong letters in Typo, and maxDashes that of
// missing or added separators.
const (
	maxTypo   = 2
	maxDashes = 3
)

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

// Typo returns the known key that differs from name in its case, in its
// separators, or in at most two letters, or "". Behind the last slash, at most
// one letter in six may differ, but always one. Typo is stricter than Nearest,
// for lists of names of which most belong to other programs.
func Typo(name string, known []string) string {
	if len(name) > maxCompared || slices.Contains(known, name) {
		return ""
	}
	last := func(key string) string { return normalize(key[strings.LastIndex(key, "/")+1:]) }
	for _, k := range known {
		if d := len(name) - len(k); d < -maxTypo-maxDashes || d > maxTypo+maxDashes || strings.Contains(name, "/") != strings.Contains(k, "/") {
			continue
		}
		if levenshtein.ComputeDistance(normalize(name), normalize(k)) <= maxTypo && levenshtein.ComputeDistance(last(name), last(k)) <= min(max(len(last(k)), 6)/6, maxTypo) {
			return k
		}
	}
	return ""
}

// normalize removes case and separators from a key, because users often get them wrong.
func normalize(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}
