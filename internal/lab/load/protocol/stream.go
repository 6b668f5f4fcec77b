package protocol

import (
	"bytes"
	"errors"
)

// maxHead is the maximum size, in bytes, of a line, of the header of a response
// and of each chunk line.
const maxHead = 64 << 10

var (
	errExtra    = errors.New("bytes after the end of the response")
	errLongHead = errors.New("header longer than 64 KiB")
	errDataEnd  = errors.New("the data do not end with CRLF where their length says")

	lineEnd = []byte("\r\n")
)

// lined is the part of a parser that all protocols with lines share. Data of a known
// length may follow a line.
type lined struct {
	line   []byte // an incomplete line; otherwise empty
	data   int64  // bytes of the data and their line end that are still to come
	ended  bool   // no line comes any more
	failed bool
	said   []byte // begin of the first error
}

// empty returns a new one with the memory of l.
func (l *lined) empty() lined { return lined{line: l.line[:0], said: l.said[:0]} }

// feed implements Answer.Feed. take handles a line.
func (l *lined) feed(p []byte, take func(line []byte) error) (done bool, err error) {
	for len(p) > 0 {
		if l.data > 0 {
			if p, err = skipData(&l.data, p); err != nil {
				return false, err
			}
			continue
		}
		if l.ended {
			return false, errExtra
		}
		var line []byte
		if line, p, err = nextLine(&l.line, p); err != nil {
			return false, err
		}
		if line == nil {
			break
		}
		if err := take(line); err != nil {
			return false, err
		}
	}
	return l.ended && l.data == 0, nil
}

// refuse keeps the first error of an answer.
func (l *lined) refuse(message []byte) {
	if !l.failed {
		l.said = append(l.said, message[:min(len(message), maxRefusal)]...)
	}
	l.failed = true
}

// Outcome returns the first error.
func (l *lined) Outcome() Outcome { return refusal(l.failed, l.said) }

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

// skipData passes over data that end with CRLF, and returns what follows them in p. left
// has the number of their bytes that are still to come, with those of the CRLF.
func skipData(left *int64, p []byte) (rest []byte, err error) {
	n := min(*left, int64(len(p)))
	for i := max(*left-int64(len(lineEnd)), 0); i < n; i++ {
		if p[i] != lineEnd[int64(len(lineEnd))-*left+i] {
			return nil, errDataEnd
		}
	}
	*left -= n
	return p[n:], nil
}

// parseDecimal parses a non-negative number of at most 18 digits.
func parseDecimal(digits []byte) (int64, bool) {
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	n := int64(0)
	for _, b := range digits {
		if b < '0' || b > '9' {
			return 0, false
		}
		n = n*10 + int64(b-'0')
	}
	return n, true
}
