package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tenon.sh/tenon/internal/agent/printable"
)

// maxLine is the maximum length of a line in bytes. Even a key line for ten
// thousand workloads is shorter.
const maxLine = 64 << 20

// A reader reads the ticks of a record. The record may be compressed.
type reader struct {
	lines   lines
	decoder decoder
	number  int  // number of the line, from 1
	skipped int  // number of lines before the first key line
	begun   bool // a key line has been read
	// foreign counts lines of other versions of the record. other is the version
	// of the last of them. inside means that the previous line was one of them.
	foreign, other int
	inside         bool
}

func newReader(r io.Reader) (*reader, error) {
	lines, err := newLines(r)
	return &reader{lines: lines}, err
}

// next returns the next tick, or io.EOF if there is none. It skips ticks of
// another version of the record. For example, after an upgrade of tenond, the
// ring still has ticks of the old version, and the new ticks must be readable.
func (r *reader) next() (entry, error) {
	for {
		text, err := r.lines.next()
		if errors.Is(err, io.EOF) && !r.begun && r.foreign > 0 {
			return entry{}, fmt.Errorf("the record is of version %d, and this program reads version %d: the tenon of the release that recorded it reads it", r.other, version)
		}
		if err != nil {
			return entry{}, err
		}
		r.number++
		l, err := parseLine(text)
		// The version is the first field of a line, so it is known even if later
		// fields cannot be read.
		if r.isForeign(l.Version) {
			continue
		}
		if err != nil {
			return entry{}, fmt.Errorf("line %d of the record: %w", r.number, err)
		}
		e, err := r.decoder.next(l)
		if errors.Is(err, errNoKey) && !r.begun {
			r.skipped++
			continue
		}
		if err != nil {
			return entry{}, fmt.Errorf("line %d of the record: tick %d: %w", r.number, l.Tick, err)
		}
		r.begun = true
		return e, nil
	}
}

// parseLine parses the JSON of a line of the record.
func parseLine(text []byte) (l line, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // without a field, a replay would have other results
	err = d.Decode(&l)
	return printable.Unquote(l, text), err
}

// isForeign reports whether this program cannot read a line because of its
// version, v. Only key lines contain a version. For any other line, v is 0, and
// isForeign uses the version of the line before it.
func (r *reader) isForeign(v int) bool {
	if v != 0 {
		r.inside = v != version
	}
	if !r.inside {
		return false
	}
	r.decoder.last = 0 // the ticks before and after are not consecutive
	if r.foreign++; v != 0 {
		r.other = v
	}
	return true
}

// lines splits a text, which may be compressed, into lines. It drops an
// incomplete last line, which a crash may leave.
type lines struct {
	from *bufio.Reader
	torn bool
}

func newLines(r io.Reader) (lines, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := b.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) { //nolint:errcheck // a shorter file has no such mark
		return lines{from: b}, nil
	}
	z, err := gzip.NewReader(b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // a crash cut the file off in its first bytes
		return lines{from: bufio.NewReader(bytes.NewReader(nil)), torn: true}, nil
	}
	if err != nil {
		return lines{}, fmt.Errorf("read the record: %w", err)
	}
	return lines{from: bufio.NewReaderSize(z, 64<<10)}, nil
}

// next returns the next line without its line end. The line is valid until the
// next call of next.
func (l *lines) next() ([]byte, error) {
	var text []byte
	for {
		part, err := l.from.ReadSlice('\n')
		if len(text)+len(part) > maxLine {
			return nil, fmt.Errorf("read the record: a line is longer than %d bytes", maxLine)
		}
		switch {
		case err == nil && text == nil:
			return part[:len(part)-1], nil
		case err == nil:
			text = append(text, part...)
			return text[:len(text)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			text = append(text, part...)
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			l.torn = l.torn || len(text)+len(part) > 0 || errors.Is(err, io.ErrUnexpectedEOF)
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("read the record: %w", err)
		}
	}
}
