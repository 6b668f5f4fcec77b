package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
)

// plainHTTP is HTTP/1.1 without TLS.
var plainHTTP = Protocol{
	Scheme: "http", Form: "http://HOST[:PORT]/PATH", Port: "80", Sends: "GET", Pages: true,
	Requests: httpRequests, Answer: func() Answer { return &HTTP{} },
}

// httpRequests returns GET for the URL, or for each of its pages.
func httpRequests(u *url.URL, pages int) (r Requests, fits bool) {
	get := func(page string) {
		text := "GET " + u.RequestURI() + page + " HTTP/1.1\r\nHost: " + u.Host + "\r\nUser-Agent: tenon\r\nAccept: */*\r\n\r\n"
		r.Load = append(r.Load, []byte(text))
	}
	if pages == 0 {
		get("")
	}
	for page := range pages {
		get(strconv.Itoa(page))
	}
	r.Ready = r.Load[0]
	return r, u.User == nil
}

type part uint8

const (
	inHead part = iota
	inBody
	inBodyUntilClose
	inChunkSize
	inChunkExtension
	inChunkData
	inTrailer
)

// An HTTP parses one HTTP/1.1 response (RFC 9112) from a stream that arrives in
// pieces. It discards the body. The zero value is ready for use.
type HTTP struct {
	status int
	// closes is true if the server will close the connection after this
	// response: it has announced this, or it speaks HTTP/1.0.
	closes bool

	part      part
	remaining int64  // bytes of the body or the chunk
	digits    int    // of the chunk size so far
	line      int    // length of the current trailer line
	head      []byte // an incomplete header; otherwise empty
}

var (
	errNotHTTP   = errors.New("not an HTTP/1 status line")
	errBareLF    = errors.New("the lines of the header end with LF alone: want CRLF")
	errChunkSize = errors.New("chunk size is not a hexadecimal number")

	headEnd          = []byte("\r\n\r\n")
	bareHeadEnd      = []byte("\n\n")
	statusLineBegin  = []byte("HTTP/1.")
	contentLength    = []byte("content-length")
	transferEncoding = []byte("transfer-encoding")
	connectionHeader = []byte("connection")
	closeToken       = []byte("close")
	keepAliveToken   = []byte("keep-alive")
	chunkedToken     = []byte("chunked")
)

// Reset makes r ready for the next response, but keeps its memory.
func (r *HTTP) Reset() { *r = HTTP{head: r.head[:0]} }

// Outcome returns what the response says: a status other than 2xx is a failure.
func (r *HTTP) Outcome() Outcome {
	if r.status < 200 || r.status > 299 {
		return Outcome{Failed: true, Refusal: strconv.Itoa(r.status), Closes: r.closes}
	}
	return Outcome{Closes: r.closes}
}

// Feed implements Answer. It allocates only if a header arrives in pieces.
func (r *HTTP) Feed(p []byte) (done bool, err error) {
	if len(p) == 0 {
		return r.part == inBodyUntilClose, nil
	}
	for r.part == inHead {
		if len(r.head) > 0 {
			r.head = append(r.head, p...)
			p = r.head
		}
		if n := min(len(p), len(statusLineBegin)); !bytes.Equal(p[:n], statusLineBegin[:n]) {
			return false, errNotHTTP // at once: the end of a header may never come
		}
		head, _, ended := bytes.Cut(p, headEnd)
		if bytes.Contains(head, bareHeadEnd) {
			return false, errBareLF
		}
		if !ended {
			if len(p) > maxHead {
				return false, errLongHead
			}
			if len(r.head) == 0 {
				r.head = append(r.head, p...)
			}
			return false, nil
		}
		if err := r.parseHead(p[:len(head)+len(lineEnd)]); err != nil {
			return false, err
		}
		p = p[len(head)+len(headEnd):]
		if r.status < 200 { // an interim response; the final response follows
			p = append([]byte(nil), p...)
			r.Reset()
			if len(p) == 0 {
				return false, nil
			}
		}
	}
	switch r.part {
	case inBody:
		if int64(len(p)) > r.remaining {
			return false, errExtra
		}
		r.remaining -= int64(len(p))
		return r.remaining == 0, nil
	case inBodyUntilClose:
		return false, nil
	}
	return r.feedChunks(p)
}

// parseHead parses the status line and the header lines, each with its CRLF.
func (r *HTTP) parseHead(head []byte) error {
	// "HTTP/1.1 200 OK", or without the reason: some servers then also leave out the space
	if len(head) < len("HTTP/1.1 200\r\n") || !bytes.HasPrefix(head, statusLineBegin) || head[8] != ' ' || head[12] != ' ' && head[12] != '\r' {
		return errNotHTTP
	}
	_, minor := parseDecimal(head[7:8])
	status, ok := parseDecimal(head[9:12])
	if !minor || !ok || status < 100 {
		return errNotHTTP
	}
	r.status = int(status)
	length, coding := int64(-1), transferCoding{}
	closes, keepsAlive := false, false

	_, rest, _ := bytes.Cut(head, lineEnd)
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, lineEnd)
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		name, value := bytes.TrimRight(line[:colon], " \t"), bytes.TrimSpace(line[colon+1:])
		counts := bytes.EqualFold(name, contentLength) || bytes.EqualFold(name, transferEncoding) || bytes.EqualFold(name, connectionHeader)
		switch {
		case counts && len(name) < colon: // RFC 9112, section 5.1: clients read it in different ways
			return fmt.Errorf("header %.100q: white space before the colon", line)
		case bytes.EqualFold(name, contentLength):
			if len(value) == 0 {
				return errors.New(`content-length "" is not a number`)
			}
			for item := range listItems(value) {
				n, ok := parseDecimal(item)
				if !ok {
					return fmt.Errorf("content-length %.100q is not a number", value)
				}
				if length >= 0 && n != length {
					return fmt.Errorf("content-length is both %d and %d", length, n)
				}
				length = n
			}
		case bytes.EqualFold(name, transferEncoding):
			coding.add(value)
		case bytes.EqualFold(name, connectionHeader):
			for item := range listItems(value) {
				closes = closes || bytes.EqualFold(item, closeToken)
				keepsAlive = keepsAlive || bytes.EqualFold(item, keepAliveToken)
			}
		}
	}
	// RFC 9112, section 9.3: a close wins, whatever else stands beside it.
	r.closes = closes || head[7] == '0' && !keepsAlive
	if err := coding.check(); err != nil {
		return err
	}
	switch {
	case r.status < 200:
	case r.status == 204 || r.status == 304:
		r.part = inBody
	case coding.codings > 0:
		r.part = inChunkSize
	case length >= 0:
		r.part, r.remaining = inBody, length
	default:
		r.part, r.closes = inBodyUntilClose, true
	}
	return nil
}

// A transferCoding collects the header lines Transfer-Encoding of one response.
// It does not allocate for the only coding that is understood.
type transferCoding struct {
	codings, chunked int
	text             []byte // of all lines; a part of the header if there is one line
}

func (c *transferCoding) add(value []byte) {
	for item := range listItems(value) {
		c.codings++
		if bytes.EqualFold(item, chunkedToken) {
			c.chunked++
		}
	}
	if c.text == nil {
		c.text = value
		return
	}
	c.text = bytes.Join([][]byte{c.text, value}, []byte(", "))
}

// check returns an error unless the body is chunked and nothing else, or there is
// no coding.
func (c *transferCoding) check() error {
	if c.codings == 0 || c.codings == 1 && c.chunked == 1 {
		return nil
	}
	return fmt.Errorf("transfer-encoding %.100q: only chunked is understood", c.text)
}

// listItems yields the items of a header value that is a list (RFC 9110, section
// 5.6.1). It leaves out empty ones.
func listItems(value []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(value) > 0 {
			var item []byte
			item, value, _ = bytes.Cut(value, []byte(","))
			if item = bytes.TrimSpace(item); len(item) > 0 && !yield(item) {
				return
			}
		}
	}
}

// feedChunks parses a chunked body (RFC 9112, section 7.1).
func (r *HTTP) feedChunks(p []byte) (done bool, err error) {
	for i := 0; i < len(p); i++ {
		b := p[i]
		switch r.part {
		case inChunkSize:
			digit, ok := hexDigit(b)
			switch {
			case ok && r.digits < 15:
				r.remaining = r.remaining<<4 | digit
				r.digits++
			case r.digits > 0 && (b == ';' || b == '\r' || b == ' '):
				r.part, r.line = inChunkExtension, 0
			default:
				return false, errChunkSize
			}
		case inChunkExtension:
			if r.line++; r.line > maxHead {
				return false, errLongHead
			}
			if b != '\n' {
				continue
			}
			if r.remaining == 0 {
				r.part, r.line = inTrailer, 0
			} else {
				r.part = inChunkData
				r.remaining += int64(len(lineEnd))
			}
		case inChunkData:
			rest, err := skipData(&r.remaining, p[i:])
			if err != nil {
				return false, err
			}
			i = len(p) - len(rest) - 1
			if r.remaining == 0 {
				r.part, r.digits = inChunkSize, 0
			}
		case inTrailer: // lines up to an empty line
			switch b {
			case '\r':
			case '\n':
				if r.line == 0 {
					if i+1 < len(p) {
						return false, errExtra
					}
					return true, nil
				}
				r.line = 0
			default:
				if r.line++; r.line > maxHead {
					return false, errLongHead
				}
			}
		}
	}
	return false, nil
}

func hexDigit(b byte) (int64, bool) {
	switch {
	case b >= '0' && b <= '9':
		return int64(b - '0'), true
	case b >= 'a' && b <= 'f':
		return int64(b-'a') + 10, true
	case b >= 'A' && b <= 'F':
		return int64(b-'A') + 10, true
	}
	return 0, false
}
