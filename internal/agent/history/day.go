package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
)

// A file begins with magic and a line of JSON, the header. A frame for each
// minute follows: the length of its body, the body, and the checksum of the
// body. A body has the minutes since the last frame, the names of rows that are
// new in this file, and the columns of all rows as bits. A name that is a part of
// another one, such as that of a pair, is in the file once.
const magic = "tenon-history 1\n"

type header struct {
	Day     int64      `json:"day"` // days since 1970, UTC
	Columns [][]string `json:"columns"`
}

const (
	// maxBody bounds the length of a body, maxRows the number of rows of a kind in a
	// file, and so the memory of a store, and maxName the length of a part of a name.
	maxBody = 1 << 20
	maxRows = 1 << rowBits
	maxName = 4096
	rowBits = 14
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("the rest is damaged")

// errManyRows means that a file has as many rows as it may have, and that a new one
// would have room for the minute.
var errManyRows = errors.New("the file has no place for more rows")

// A day is what writing and reading a file have in common: the rows that were
// named, their last values, and the rows of the last minute.
type day struct {
	header
	at     int64 // the last minute
	kinds  []kindOfDay
	parts  []string // of names
	byPart map[string]int
}

type kindOfDay struct {
	columns int
	names   []string
	byName  map[string]int
	last    []int64 // by row and column, and one more than the value
	means   []mean  // by row and column
	present []int   // the rows of the last minute, ascending
}

func newDay(h header) *day {
	d := &day{header: h, at: h.Day*minutesOfDay - 1, byPart: map[string]int{}}
	for _, columns := range h.Columns {
		d.kinds = append(d.kinds, kindOfDay{columns: len(columns), byName: map[string]int{}})
	}
	return d
}

func (k *kindOfDay) name(name string) int {
	at := len(k.names)
	k.names, k.byName[name] = append(k.names, name), at
	k.last = append(k.last, make([]int64, k.columns)...)
	k.means = append(k.means, slices.Repeat([]mean{firstMean}, k.columns)...)
	return at
}

func (d *day) part(part string) {
	d.byPart[part] = len(d.parts)
	d.parts = append(d.parts, part)
}

// appendName appends a name: the number of its parts, and for each of them its number
// from 1, or 0 and its text if it is new.
func (d *day) appendName(to []byte, name string) []byte {
	parts := partsOf(name)
	to = binary.AppendUvarint(to, uint64(len(parts)))
	for _, part := range parts {
		at, known := d.byPart[part]
		if known {
			to = binary.AppendUvarint(to, uint64(at)+1)
			continue
		}
		to = append(binary.AppendUvarint(append(to, 0), uint64(len(part))), part...)
		d.part(part)
	}
	return to
}

// readName reads what appendName wrote.
func (d *day) readName(c *cursor) (string, error) {
	n, err := c.number(mostParts)
	if err != nil {
		return "", err
	}
	parts := make([]string, n)
	for i := range parts {
		at, err := c.number(uint64(len(d.parts)))
		if err != nil {
			return "", err
		}
		if at > 0 {
			parts[i] = d.parts[at-1]
			continue
		}
		size, err := c.number(min(uint64(len(c.rest)), maxName))
		if err != nil || size > uint64(len(c.rest)) {
			return "", errDamaged
		}
		parts[i], c.rest = string(c.rest[:size]), c.rest[size:]
		d.part(parts[i])
	}
	return strings.Join(parts, pairMark), nil
}

// mostParts is the number of parts of the name of a pair.
const mostParts = 2

func partsOf(name string) []string { return strings.SplitN(name, pairMark, mostParts) }

// begin returns the first bytes of a file.
func (h header) begin() ([]byte, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return append(append([]byte(magic), line...), '\n'), nil
}

// readHeader returns the header of a file, and the bytes behind it.
func readHeader(file []byte) (header, []byte, error) {
	rest, is := bytes.CutPrefix(file, []byte(magic))
	line, frames, whole := bytes.Cut(rest, []byte("\n"))
	if !is || !whole {
		return header{}, nil, errors.New("it is no file of the history, or of another version")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, nil, fmt.Errorf("its header: %w", err)
	}
	if h.Day < 0 || h.Day > maxDay || len(h.Columns) > 64 || slices.ContainsFunc(h.Columns, func(c []string) bool { return len(c) > 1024 }) {
		return header{}, nil, errors.New("its header is out of range")
	}
	return h, frames, nil
}

// maxDay keeps minutes within an int64 by far.
const maxDay = 1 << 40

// appendFrame appends the frame of a minute. The minute must be of this day and
// later than the last one. It returns the number of rows for which a frame has no room.
// After an error, d has no use any more.
func (d *day) appendFrame(to []byte, m *Minute) (frame []byte, left int, err error) {
	body := binary.AppendUvarint(nil, uint64(m.At-d.at))
	var w bitWriter
	var numbers []uint64
	var means []*mean
	var news []byte
	for kind := range d.kinds {
		k := &d.kinds[kind]
		first := len(k.names)
		var names []byte
		order := make([]int, 0, len(m.Rows[kind])) // the rows of the minute, by their place in the file
		rowOf := make(map[int]*Row, len(m.Rows[kind]))
		for i := range m.Rows[kind] {
			r := &m.Rows[kind][i]
			if len(r.Values) != k.columns {
				return nil, 0, fmt.Errorf("a row of kind %d has %d values, want %d", kind, len(r.Values), k.columns)
			}
			at, known := k.byName[r.Name]
			if !known {
				if len(k.names) == maxRows-1 && first > 0 {
					return nil, 0, errManyRows
				}
				tooLong := func(part string) bool { return len(part) > maxName }
				if len(k.names) == maxRows-1 || len(news)+len(names) > maxBody/2 || slices.ContainsFunc(partsOf(r.Name), tooLong) {
					left++
					continue
				}
				at, names = k.name(r.Name), d.appendName(names, r.Name)
			}
			if rowOf[at] != nil {
				return nil, 0, fmt.Errorf("two rows of kind %d have the name %q", kind, r.Name)
			}
			order, rowOf[at] = append(order, at), r
		}
		slices.Sort(order)
		news = append(binary.AppendUvarint(news, uint64(len(k.names)-first)), names...)
		same := slices.Equal(order, k.present)
		w.bit(!same)
		if !same {
			w.put(uint64(len(order)), rowBits)
			next := 0
			for _, at := range order {
				w.rice(uint64(at-next), 0)
				next = at + 1
			}
			k.present = order
		}
		for c := range k.columns {
			numbers, means = numbers[:0], means[:0]
			for _, at := range order {
				last, v := &k.last[at*k.columns+c], max(rowOf[at].Values[c], Absent)+1
				numbers, means, *last = append(numbers, zigzag(v-*last)), append(means, &k.means[at*k.columns+c]), v
			}
			w.numbers(numbers, means)
		}
	}
	body = append(append(body, news...), w.bytes...)
	if len(body) > maxBody {
		return nil, 0, fmt.Errorf("a minute has %d bytes, more than %d", len(body), maxBody)
	}
	d.at = m.At
	to = append(binary.AppendUvarint(to, uint64(len(body))), body...)
	return binary.LittleEndian.AppendUint32(to, crc32.Checksum(body, castagnoli)), left, nil
}

// cutFrame returns the body of the first frame, and the bytes behind the frame.
func cutFrame(frames []byte) (body, rest []byte, err error) {
	size, n := binary.Uvarint(frames)
	if n <= 0 || size == 0 || size > maxBody || uint64(len(frames)-n) < size+4 {
		return nil, nil, errDamaged
	}
	body, rest = frames[n:n+int(size)], frames[n+int(size):]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(rest) {
		return nil, nil, errDamaged
	}
	return body, rest[4:], nil
}

// A cursor reads the body of a frame.
type cursor struct{ rest []byte }

func (c *cursor) number(most uint64) (uint64, error) {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 || v > most {
		return 0, errDamaged
	}
	c.rest = c.rest[n:]
	return v, nil
}

// readFrame reads a body into the state of the day. It calls row for each row
// with its kind, its place, and its values plus one.
func (d *day) readFrame(body []byte, row func(kind, at int, values []int64)) error {
	c := cursor{body}
	step, err := c.number(minutesOfDay)
	if err != nil || step == 0 || d.at+int64(step) >= (d.Day+1)*minutesOfDay {
		return errDamaged
	}
	for i := range d.kinds {
		k := &d.kinds[i]
		n, err := c.number(uint64(maxRows - len(k.names)))
		for ; err == nil && n > 0; n-- {
			var name string
			if name, err = d.readName(&c); err == nil {
				k.name(name)
			}
		}
		if err != nil {
			return err
		}
	}
	r := bitReader{bytes: c.rest}
	for i := range d.kinds {
		k := &d.kinds[i]
		if r.get(1) == 1 {
			if err := k.readPresent(&r); err != nil {
				return err
			}
		}
		for column := range k.columns {
			if r.get(1) == 0 {
				continue // no value has changed
			}
			for _, at := range k.present {
				cell := at*k.columns + column
				v := r.rice(k.means[cell].width())
				k.last[cell] += unzigzag(v)
				k.means[cell] = k.means[cell].and(v)
			}
		}
		if r.failed {
			return errDamaged
		}
		for _, at := range k.present {
			row(i, at, k.last[at*k.columns:(at+1)*k.columns])
		}
	}
	d.at += int64(step)
	return nil
}

// readPresent reads which rows a minute has.
func (k *kindOfDay) readPresent(r *bitReader) error {
	n := int(r.get(rowBits))
	if n > len(k.names) {
		return errDamaged
	}
	k.present = make([]int, n)
	next := 0
	for i := range k.present {
		gap := r.rice(0)
		if gap >= uint64(len(k.names)-next) {
			return errDamaged
		}
		k.present[i] = next + int(gap)
		next = k.present[i] + 1
	}
	return nil
}
