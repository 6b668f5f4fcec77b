package valuetext

import (
	"strconv"
	"strings"
)

// literalPath begins the quoted form of a path that is not UTF-8; a Go string literal
// follows. The name of a cgroup may contain any byte except "/", newline and NUL, but
// JSON can hold only UTF-8. Since no path contains a NUL, no path looks quoted.
const literalPath = "\x00"

// QuotePath returns the path of a cgroup in a form that JSON can hold. A path
// in UTF-8 stays unchanged.
func QuotePath[P ~string](path P) P {
	if strings.ToValidUTF8(string(path), "") == string(path) {
		return path
	}
	return P(literalPath + strconv.Quote(string(path)))
}

// UnquotePath is the inverse of QuotePath. It returns a text with an invalid
// string literal unchanged.
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
