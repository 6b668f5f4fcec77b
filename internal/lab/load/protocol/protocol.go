// Package protocol parses the answers of services: HTTP/1.1, the protocol of
// Redis (RESP), the text protocol of memcached, and the protocol of PostgreSQL.
package protocol

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
	// Closes reports whether the service closes the connection after the
	// answer.
	Closes() bool
}
