package schedtrace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// A layout holds the position of each field in a record. It comes from a
// format file of tracefs (Documentation/trace/events.rst, "Event formats").
type layout struct {
	id     uint16
	fields map[string]field
}

// A field is a range of bytes in a record. A dynamic field (__data_loc) refers
// to a text elsewhere in the record: its low 16 bits are the offset of the
// text, and its high 16 bits the length.
type field struct {
	offset, size int
	dynamic      bool
}

// parseLayout reads a format file. It also reads the file header_page, whose
// lines have the same form, but no id.
func parseLayout(text string) (layout, error) {
	l := layout{fields: map[string]field{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if id, ok := strings.CutPrefix(line, "ID:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 16)
			if err != nil {
				return layout{}, fmt.Errorf("trace format: %q: %w", line, err)
			}
			l.id = uint16(n)
		}
		if !strings.HasPrefix(line, "field:") {
			continue
		}
		f, name := field{}, ""
		for part := range strings.SplitSeq(line, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(part), ":")
			var err error
			switch key {
			case "field":
				f.dynamic = strings.HasPrefix(value, "__data_loc ")
				name = value[strings.LastIndexByte(value, ' ')+1:]
				name, _, _ = strings.Cut(name, "[")
			case "offset":
				f.offset, err = strconv.Atoi(value)
			case "size":
				f.size, err = strconv.Atoi(value)
			}
			if err != nil {
				return layout{}, fmt.Errorf("trace format: %q: %w", line, err)
			}
		}
		l.fields[name] = f
	}
	return l, nil
}

// need returns an error if the layout lacks one of the given numbers or texts,
// or has it with another type.
func (l layout) need(numbers, texts []string) error {
	for _, name := range numbers {
		if f, ok := l.fields[name]; !ok || f.size != 4 || f.dynamic {
			return fmt.Errorf("trace format: field %s of event %d has %d bytes, want 4: %w", name, l.id, f.size, ErrUnsupported)
		}
	}
	for _, name := range texts {
		if f, ok := l.fields[name]; !ok || (f.dynamic && f.size != 4) {
			return fmt.Errorf("trace format: event %d has no text %s: %w", l.id, name, ErrUnsupported)
		}
	}
	return nil
}

// number reads a field of 4 bytes. It returns 0 if the record is too short.
func (l layout) number(record []byte, name string) int {
	f := l.fields[name]
	if f.offset+4 > len(record) {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(record[f.offset:])))
}

// text reads a text field. The text ends at the first zero byte.
func (l layout) text(record []byte, name string) []byte {
	f := l.fields[name]
	if f.dynamic {
		at := uint32(l.number(record, name))
		f.offset, f.size = int(at&0xffff), int(at>>16)
	}
	if f.offset+f.size > len(record) {
		return nil
	}
	text, _, _ := bytes.Cut(record[f.offset:f.offset+f.size], []byte{0})
	return text
}
