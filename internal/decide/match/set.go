package match

import (
	"errors"
	"strings"
)

// A set is the set of characters that brackets in a glob match, as in [a-z].
type set struct {
	not  bool
	text string // characters, and ranges of them
}

// parseSet reads the set at the beginning of a pattern, and returns its length.
// A ] directly after the opening bracket is a member of the set.
func parseSet(pattern string) (s set, length int, err error) {
	rest := pattern[1:]
	if rest != "" && (rest[0] == '!' || rest[0] == '^') {
		s.not, rest = true, rest[1:]
	}
	end := -1
	if rest != "" {
		end = strings.IndexByte(rest[1:], ']') + 1
	}
	if end <= 0 {
		return set{}, 0, errors.New("want ] after [")
	}
	s.text = rest[:end]
	return s, len(pattern) - len(rest) + end + 1, nil
}

// ranges calls yield with the first and the last character of each range.
func (s set) ranges(yield func(first, last rune) bool) {
	for text := s.text; text != ""; {
		first, n := character(text)
		last := first
		text = text[n:]
		if len(text) > 1 && text[0] == '-' {
			last, n = character(text[1:])
			text = text[1+n:]
		}
		if !yield(first, last) {
			return
		}
	}
}

func (s set) has(c rune) bool {
	for first, last := range s.ranges {
		if first <= c && c <= last {
			return !s.not
		}
	}
	return s.not
}
