package protocol

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// redis is a cache with the protocol of Redis.
var redis = Protocol{
	Scheme: "redis", Form: "redis://HOST[:PORT]", Port: "6379", Sends: "gets and sets",
	Requests: func(u *url.URL, _ int) (Requests, bool) {
		get := func(key string) []byte { return redisCommand("GET", key) }
		set := func(key string) []byte { return redisCommand("SET", key, strings.Repeat("x", cacheValue)) }
		return cacheRequests(redisCommand("PING"), get, set), isBare(u)
	},
	Answer: func() Answer { return &Redis{} },
}

// redisCommand encodes a command as an array of bulk strings.
func redisCommand(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// A Redis parses one reply of the Redis protocol, version 2 (RESP2).
type Redis struct {
	lined
	items int64 // replies that are still to come after this line; arrays contain more
}

var (
	errReplyType  = errors.New("not a reply of the Redis protocol")
	errReplyCount = errors.New("the length in a reply is not a number")
)

// Reset implements Answer.
func (r *Redis) Reset() { *r = Redis{lined: r.empty()} }

// Feed implements Answer.
func (r *Redis) Feed(p []byte) (done bool, err error) { return r.feed(p, r.take) }

// take handles the line with which a reply begins.
func (r *Redis) take(line []byte) error {
	if len(line) == 0 {
		return errReplyType
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
	case '-':
		r.refuse(rest)
	case '$', '*':
		n, ok := parseDecimal(rest)
		switch {
		case string(rest) == "-1": // null
		case !ok || n > 1<<40:
			return errReplyCount
		case kind == '*':
			r.items += n
		default:
			r.data = n + int64(len(lineEnd))
		}
	default:
		return fmt.Errorf("%w: it begins with %q", errReplyType, kind)
	}
	r.ended = r.items == 0
	r.items--
	return nil
}
