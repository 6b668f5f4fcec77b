// Package spelling finds the name that was probably meant by one that is
// misspelt.
package spelling

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// longest is the number of characters of a name that are compared.
const longest = 64

// leastPrefix is the minimum length of the beginning of a key that may stand
// for the key.
const leastPrefix = 4

// Nearest returns the known key that name probably means. Name may be the
// beginning of a key, or may have at most every third letter wrong or missing.
// Nearest returns "" if there is no such key.
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
