// Package protocol parses the answers of services: HTTP/1.1, the protocol of
// Redis (RESP), the text protocol of memcached, and the protocol of PostgreSQL.
package protocol

import (
	"strings"
	"unicode"
)

// An Answer parses one answer from a stream that arrives in pieces. It discards
// the content.
type Answer interface {
	// Reset makes the parser ready for the next answer, but keeps its memory.
	Reset()
	// Feed takes the next piece of the stream. It reports whether the answer is
	// now complete. Bytes after the end of the answer are an error.
	Feed(p []byte) (done bool, err error)
	// EOF reports whether the end of the stream completes the answer.
	EOF() bool
	// Failed reports whether the complete answer says that the request failed.
	Failed() bool
	// Refusal returns what an answer that Failed says: the status of HTTP, or the
	// message of the service in one line of at most 100 bytes.
	Refusal() string
	// Closes reports whether the service closes the connection after the
	// answer.
	Closes() bool
}

// maxRefusal is the largest number of bytes of an error message that a parser keeps.
const maxRefusal = 100

// printable returns the beginning of a message as one line of printable text.
func printable(message []byte) string {
	text := strings.ToValidUTF8(string(message[:min(len(message), maxRefusal)]), "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}
