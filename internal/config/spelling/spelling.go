// Package spelling finds the name that a misspelt name probably means.
package spelling

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// longest is how many characters of a name are compared.
const longest = 64

// leastPrefix is how many characters of a key a name must have, if it is the
// beginning of that key.
const leastPrefix = 4

// Nearest returns the known key that name probably means. name may be the
// beginning of a key. It may also have wrong or missing letters, but at most
// every third. If there is no such key, Nearest returns "".
func Nearest(name string, known []string) string {
	best, least := "", longest
	if len(name) > longest {
		return ""
	}
	begun := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(plain(k), plain(name)) })
	if len(begun) == 1 && len(name) >= leastPrefix {
		return begun[0] // only an ending, such as Percent, is missing
	}
	for _, k := range known {
		d := levenshtein.ComputeDistance(plain(name), plain(k))
		if d < least && d <= max(len(name), len(k))/3 {
			best, least = k, d
		}
	}
	return best
}

// plain returns a key without case and separators, which are often wrong.
func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}
