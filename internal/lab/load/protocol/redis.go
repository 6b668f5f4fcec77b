package protocol

import (
	"bytes"
	"errors"
	"fmt"
)

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

// Feed takes the next piece of the stream. It reports whether the reply is now
// complete.
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

// EOF returns false: in this protocol, the end of the connection completes no
// reply.
func (r *Redis) EOF() bool { return false }

// Failed reports whether the reply or a part of it is an error.
func (r *Redis) Failed() bool { return r.failed }

// Refusal returns the first error in the reply.
func (r *Redis) Refusal() string { return printable(r.said) }

// Closes returns false, because Redis does not announce the end of a
// connection.
func (r *Redis) Closes() bool { return false }

// nextLine returns the next line of a stream without its CRLF, and the rest of
// the stream. If the line is incomplete, nextLine stores it in kept for the
// next call, and returns nil.
func nextLine(kept *[]byte, p []byte) (line, rest []byte, err error) {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		if *kept = append(*kept, p...); len(*kept) > maxHead {
			return nil, nil, errLongHead
		}
		return nil, nil, nil
	}
	line, rest = p[:end], p[end+1:]
	if len(*kept) > 0 {
		line = append(*kept, line...)
		*kept = line[:0]
	}
	if len(line) == 0 || line[len(line)-1] != '\r' {
		return nil, nil, errors.New("a line does not end with CRLF")
	}
	return line[:len(line)-1], rest, nil
}
