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
	line   []byte // an incomplete line; otherwise empty
	items  int64  // replies that are still to come; arrays contain more
	bulk   int64  // bytes of the bulk string and its line end that are still to come
	begun  bool
	failed bool
	said   []byte // begin of the first error
}

var (
	errReplyType  = errors.New("not a reply of the Redis protocol")
	errReplyCount = errors.New("the length in a reply is not a number")
)

// Reset makes r ready for the next reply, but keeps its memory.
func (r *Redis) Reset() { *r = Redis{line: r.line[:0], said: r.said[:0]} }

// Feed implements Answer.
func (r *Redis) Feed(p []byte) (done bool, err error) {
	if !r.begun {
		r.begun, r.items = true, 1
	}
	for len(p) > 0 {
		if r.items == 0 && r.bulk == 0 {
			return false, errExtra
		}
		if r.bulk > 0 {
			if p, err = skipData(&r.bulk, p); err != nil {
				return false, err
			}
			continue
		}
		var line []byte
		if line, p, err = nextLine(&r.line, p); err != nil {
			return false, err
		}
		if line == nil {
			break
		}
		if err := r.take(line); err != nil {
			return false, err
		}
	}
	return r.begun && r.items == 0 && r.bulk == 0, nil
}

// take handles the line with which a reply begins.
func (r *Redis) take(line []byte) error {
	r.items--
	if len(line) == 0 {
		return errReplyType
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
	case '-':
		if !r.failed {
			r.said = append(r.said, rest[:min(len(rest), maxRefusal)]...)
		}
		r.failed = true
	case '$', '*':
		if string(rest) == "-1" { // null
			return nil
		}
		n, ok := parseDecimal(rest)
		if !ok || n > 1<<40 {
			return errReplyCount
		}
		if kind == '*' {
			r.items += n
		} else {
			r.bulk = n + int64(len(lineEnd))
		}
	default:
		return fmt.Errorf("%w: it begins with %q", errReplyType, kind)
	}
	return nil
}

// Outcome returns the first error in the reply.
func (r *Redis) Outcome() Outcome { return refusal(r.failed, r.said) }
