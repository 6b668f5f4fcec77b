package record

import (
	"bytes"
	"encoding/json"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/model/valuetext"
)

// The name of a cgroup may have bytes that are not UTF-8. encoding/json replaces each
// of them by U+FFFD, which it writes as this escape, so that two names would become
// one. A real U+FFFD has no escape.
var replaced = []byte(`\ufffd`)

// quoted begins each text that valuetext.QuotePath has changed.
var quoted = []byte(`"\u0000`)

// textOfLine returns the JSON of a line of the record or of the audit log. It quotes
// the texts that JSON cannot hold.
func textOfLine[T any](l T) ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil || !bytes.Contains(text, replaced) {
		return text, err
	}
	return json.Marshal(printable.EachText(l, valuetext.QuotePath[string]))
}

// parseLine parses the JSON of a line of the record.
func parseLine(text []byte) (l line, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // without a field, a replay would have other results
	err = d.Decode(&l)
	if bytes.Contains(text, quoted) {
		l = printable.EachText(l, valuetext.UnquotePath[string])
	}
	return l, err
}
