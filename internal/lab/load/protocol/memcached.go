package protocol

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
)

// memcached is a cache with the text protocol of memcached.
var memcached = Protocol{
	Scheme: "memcached", Form: "memcached://HOST[:PORT]", Port: "11211", Sends: "gets and sets",
	Requests: func(u *url.URL, _ int) (Requests, bool) {
		get := func(key string) []byte { return []byte("get " + key + "\r\n") }
		set := func(key string) []byte {
			return fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", key, cacheValue, strings.Repeat("x", cacheValue))
		}
		return cacheRequests([]byte("version\r\n"), get, set), isBare(u)
	},
	Answer: func() Answer { return &Memcached{} },
}

// A Memcached parses one answer to get, set or version in memcached's text
// protocol.
type Memcached struct{ lined }

// Reset implements Answer.
func (m *Memcached) Reset() { *m = Memcached{m.empty()} }

// Feed implements Answer.
func (m *Memcached) Feed(p []byte) (done bool, err error) { return m.feed(p, m.take) }

// take handles one line. It is the header of a value, or the end of the answer.
func (m *Memcached) take(line []byte) error {
	word, rest, _ := bytes.Cut(line, []byte(" "))
	switch string(word) {
	case "VALUE": // VALUE key flags bytes [cas]
		fields := bytes.Fields(rest)
		if len(fields) < 3 {
			return fmt.Errorf("value header %.100q: want key, flags and length", line)
		}
		n, ok := parseDecimal(fields[2])
		if !ok || n > 1<<40 {
			return fmt.Errorf("value header %.100q: the length is not a number", line)
		}
		m.data = n + int64(len(lineEnd))
		return nil
	case "END", "STORED", "VERSION":
	case "NOT_STORED", "ERROR", "CLIENT_ERROR", "SERVER_ERROR":
		m.refuse(line)
	default:
		return fmt.Errorf("not an answer of memcached: it begins with %.100q", word)
	}
	m.ended = true
	return nil
}
