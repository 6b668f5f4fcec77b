package printable

import (
	"bytes"
	"encoding/json"

	"tenon.sh/tenon/internal/model/valuetext"
)

// The name of a cgroup may have bytes that are not UTF-8. encoding/json replaces each
// of them by U+FFFD, which it writes as this escape, so that two names would become
// one. A real U+FFFD has no escape.
var replaced = []byte(`\ufffd`)

// quoted begins each text that valuetext.QuotePath has changed.
var quoted = []byte(`"\u0000`)

// Marshal returns the JSON of a value. It quotes the texts that JSON cannot hold, and
// Unquote is the inverse of that.
func Marshal[T any](v T) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil || !bytes.Contains(text, replaced) {
		return text, err
	}
	return json.Marshal(EachText(v, valuetext.QuotePath[string]))
}

// Unquote returns a value that was parsed from a text of Marshal, with the texts that
// Marshal has quoted as they were before.
func Unquote[T any](v T, text []byte) T {
	if !bytes.Contains(text, quoted) {
		return v
	}
	return EachText(v, valuetext.UnquotePath[string])
}
