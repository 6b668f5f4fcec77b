package valuetext

import (
	"strconv"
	"strings"
)

// literalPath marks the quoted form of a path that is not UTF-8: a Go string literal
// follows it. A cgroup may have such a name, but JSON can hold only UTF-8. The mark
// begins with NUL, which no path contains, so no path is mistaken for a quoted one.
const literalPath = "\x00"

// QuotePath returns the path of a cgroup in a form that JSON can hold. It
// changes only paths that are not UTF-8.
func QuotePath[P ~string](path P) P {
	if strings.ToValidUTF8(string(path), "") == string(path) {
		return path
	}
	return P(literalPath + strconv.Quote(string(path)))
}

// UnquotePath is the inverse of QuotePath. If the string literal is not valid,
// it returns the text unchanged.
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
