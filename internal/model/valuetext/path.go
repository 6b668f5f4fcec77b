package valuetext

import (
	"strconv"
	"strings"
)

// The name of a cgroup consists of any bytes except "/", newline and NUL, but
// JSON has only UTF-8. A path with other bytes is written as a Go string literal
// behind a NUL, which no path contains.
const literalPath = "\x00"

// QuotePath returns the path of a cgroup in a form that survives JSON. It is the
// path itself if that is UTF-8.
func QuotePath[P ~string](path P) P {
	if strings.ToValidUTF8(string(path), "") == string(path) {
		return path
	}
	return P(literalPath + strconv.Quote(string(path)))
}

// UnquotePath is the inverse of QuotePath. A literal with a fault stays as it
// is: it is no path of a cgroup.
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
