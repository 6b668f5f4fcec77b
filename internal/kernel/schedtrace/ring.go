package schedtrace

import (
	"encoding/binary"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Types of the entries in a page of the ring buffer (header_event of tracefs).
// An entry with a type from 1 to 28 is a record of as many words of 4 bytes.
const (
	entryLong    = 0  // a record; its first 4 bytes hold its length, themselves included
	entryPadding = 29 // the end of the page, or a discarded record
	entryExtend  = 30 // a delta of more than 27 bits
	entryStamp   = 31 // an absolute time of 59 bits
)

// Bits of the commit field of a page.
const (
	commitMask   = 1<<27 - 1
	missedEvents = 1 << 31
)

// A pageReader turns the raw pages of per_cpu/cpuN/trace_pipe_raw into events.
type pageReader struct {
	page   layout         // the layout of header_page
	decode map[int]decode // by event id
	names  map[string]string
}

type decode struct {
	layout
	kind Kind
}

// read appends the events of one page of one CPU. If the kernel lost events
// before this page, it returns ErrVoid.
func (r *pageReader) read(events []Event, cpu unit.CPU, page []byte) ([]Event, error) {
	begin := r.page.fields["data"].offset
	if len(page) < begin || begin < 16 {
		return events, fmt.Errorf("read a page of the trace of CPU %d: %d bytes: %w", cpu, len(page), ErrVoid)
	}
	commit := binary.NativeEndian.Uint64(page[r.page.fields["commit"].offset:])
	if commit&missedEvents != 0 {
		return events, fmt.Errorf("read a page of the trace of CPU %d: events before it are lost: %w", cpu, ErrVoid)
	}
	end := begin + int(commit&commitMask)
	if end > len(page) {
		return events, fmt.Errorf("read a page of the trace of CPU %d: the header says that %d of %d bytes are used: %w", cpu, end, len(page), ErrVoid)
	}
	now := binary.NativeEndian.Uint64(page[r.page.fields["timestamp"].offset:])
	page = page[begin:end]
	for len(page) >= 4 {
		head := binary.NativeEndian.Uint32(page)
		kind, delta := head&31, uint64(head>>5)
		size, record := 4, 0 // size of the whole entry; offset of the record in it
		switch {
		case kind == entryPadding && delta == 0:
			return events, nil
		case kind == entryPadding, kind == entryLong:
			if len(page) < 8 {
				return events, fmt.Errorf("read a page of the trace of CPU %d: an entry is cut off: %w", cpu, ErrVoid)
			}
			size += int(binary.NativeEndian.Uint32(page[4:]))
			if kind == entryLong {
				now += delta
				record = 8
			}
		case kind == entryExtend, kind == entryStamp:
			if len(page) < 8 {
				return events, fmt.Errorf("read a page of the trace of CPU %d: an entry is cut off: %w", cpu, ErrVoid)
			}
			size = 8
			far := uint64(binary.NativeEndian.Uint32(page[4:]))<<27 | delta
			if kind == entryExtend {
				now += far
			} else {
				// The entry holds the low 59 bits of the time. The high bits
				// are those of the page's timestamp.
				now = now&^(1<<59-1) | far
			}
		default:
			size += int(kind) * 4
			now += delta
			record = 4
		}
		if size > len(page) || size < 4 {
			return events, fmt.Errorf("read a page of the trace of CPU %d: an entry of %d bytes, but only %d bytes are left: %w", cpu, size, len(page), ErrVoid)
		}
		if record > 0 {
			events = r.event(events, cpu, time.Duration(now), page[record:size])
		}
		page = page[size:]
	}
	return events, nil
}

// event decodes a record. If it is of a recorded kind, event appends it to the
// list.
func (r *pageReader) event(events []Event, cpu unit.CPU, at time.Duration, record []byte) []Event {
	if len(record) < 2 {
		return events
	}
	d, ok := r.decode[int(binary.NativeEndian.Uint16(record))]
	if !ok {
		return events
	}
	e := Event{At: at, CPU: cpu, Kind: d.kind}
	switch d.kind {
	case Switch:
		e.Prev = Thread{TID: d.number(record, "prev_pid"), Comm: r.name(d.text(record, "prev_comm"))}
		e.Thread = Thread{TID: d.number(record, "next_pid"), Comm: r.name(d.text(record, "next_comm"))}
	case Wake:
		e.Thread = Thread{TID: d.number(record, "pid"), Comm: r.name(d.text(record, "comm"))}
		e.Target = unit.CPU(d.number(record, "target_cpu"))
	}
	return append(events, e)
}

// name returns the same string for equal texts, to save memory.
func (r *pageReader) name(text []byte) string {
	if name, ok := r.names[string(text)]; ok {
		return name
	}
	name := string(text)
	r.names[name] = name
	return name
}
