// Package protocol has the protocols in which the load client asks services, each
// in a file of its own: which requests it sends, and how it parses the answers.
package protocol

import (
	"net/url"
	"strings"
	"unicode"
)

// A Protocol says how a client asks the services of one kind. The load client
// knows no more about them.
type Protocol struct {
	Scheme string // of the URLs
	Form   string // of the URLs, for messages
	Port   string // without one in the URL
	Sends  string // the kind of requests, for the help of commands
	// Connections is the number of connections with which an experiment loads
	// such a service. 0 means 256.
	Connections int
	Pages       bool // requests can be for random pages
	// Requests returns what a client sends to the service at a URL. If pages is
	// above 0, the requests of the load are for random pages. fits is false if
	// the URL does not have the form.
	Requests func(u *url.URL, pages int) (r Requests, fits bool)
	Answer   func() Answer // a parser of answers
}

// protocols lists all protocols.
var protocols = []Protocol{plainHTTP, redis, memcached, postgres}

// Requests are the messages that a client sends to one service.
type Requests struct {
	Hello []byte   // opens each connection, and has an answer; nil: none
	Ready []byte   // its good answer shows that the service is ready
	Fill  [][]byte // before the run: all keys exist, and a query is right
	Load  [][]byte // one of them is drawn for each send
}

// An Answer parses one answer from a stream that arrives in pieces. It discards
// the content.
type Answer interface {
	// Reset makes the parser ready for the next answer, but keeps its memory.
	Reset()
	// Feed takes the next piece of the stream. It reports whether the answer is
	// now complete. An empty piece is the end of the stream. Bytes after the end
	// of the answer are an error.
	Feed(p []byte) (done bool, err error)
	// Outcome returns what the complete answer says.
	Outcome() Outcome
}

// An Outcome is the meaning of a complete answer.
type Outcome struct {
	Failed bool // the request failed
	// Refusal is the status of HTTP, or the message of the service in one line of
	// at most 100 bytes. It is empty unless the request failed.
	Refusal string
	Closes  bool // the service closes the connection after this answer
}

// maxRefusal is the largest number of bytes of an error message that a parser keeps.
const maxRefusal = 100

// refusal returns the outcome of a protocol in which the service does not
// announce the end of a connection. It shows the beginning of the message as one
// line of printable text.
func refusal(failed bool, message []byte) Outcome {
	if !failed {
		return Outcome{}
	}
	text := strings.ToValidUTF8(string(message[:min(len(message), maxRefusal)]), "")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return Outcome{Failed: true, Refusal: strings.TrimSpace(text)}
}
