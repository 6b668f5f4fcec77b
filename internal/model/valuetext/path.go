package valuetext

import (
	"strconv"
	"strings"
)

// A path that is not UTF-8 is written as a NUL and a Go string literal. The
// name of a cgroup may contain any bytes except "/", newline and NUL, but JSON
// can hold only UTF-8. No path contains a NUL.
const literalPath = "\x00"

// QuotePath returns the path of a cgroup in a form that JSON can hold. It is
// the path itself if that is UTF-8.
func QuotePath[P ~string](path P) P {
	if strings.ToValidUTF8(string(path), "") == string(path) {
		return path
	}
	return P(literalPath + strconv.Quote(string(path)))
}

// UnquotePath is the inverse of QuotePath. If a text has an invalid literal,
// UnquotePath returns it unchanged, because no path of a cgroup looks like
// that.
func UnquotePath[P ~string](text P) P {
	literal, is := strings.CutPrefix(string(text), literalPath)
	if !is {
		return text
	}
	path, err := strconv.Unquote(literal)
	if err != nil {
		return text
	}
	return P(path)
}
