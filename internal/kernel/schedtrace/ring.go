package schedtrace

import (
	"encoding/binary"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Types of the entries of a page of the ring buffer, as header_event of
// tracefs lists them: up to 28 is a record of so many times 4 bytes.
const (
	entryLong    = 0  // a record whose length, itself included, is in the first 4 bytes
	entryPadding = 29 // nothing more on this page, or a record that was discarded
	entryExtend  = 30 // a delta of more than 27 bits
	entryStamp   = 31 // an absolute time of 59 bits
)

// Parts of a page's commit field.
const (
	commitMask   = 1<<27 - 1
	missedEvents = 1 << 31
)

// A pageReader turns the raw pages of per_cpu/cpuN/trace_pipe_raw into events.
type pageReader struct {
	page   layout         // of header_page
	decode map[int]decode // by the id of the event
	names  map[string]string
}

type decode struct {
	layout
	kind Kind
}

// read appends the events of one page of one CPU. It fails with ErrVoid if the
// kernel says that events before it are lost.
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
		return events, fmt.Errorf("read a page of the trace of CPU %d: %d bytes are used of %d: %w", cpu, end, len(page), ErrVoid)
	}
	now := binary.NativeEndian.Uint64(page[r.page.fields["timestamp"].offset:])
	page = page[begin:end]
	for len(page) >= 4 {
		head := binary.NativeEndian.Uint32(page)
		kind, delta := head&31, uint64(head>>5)
		size, record := 4, 0 // of the whole entry, and where its record begins
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
				// The kernel stores 59 bits; the page's own stamp has the others.
				now = now&^(1<<59-1) | far
			}
		default:
			size += int(kind) * 4
			now += delta
			record = 4
		}
		if size > len(page) || size < 4 {
			return events, fmt.Errorf("read a page of the trace of CPU %d: an entry of %d bytes where %d are left: %w", cpu, size, len(page), ErrVoid)
		}
		if record > 0 {
			events = r.event(events, cpu, time.Duration(now), page[record:size])
		}
		page = page[size:]
	}
	return events, nil
}

// event appends what a record tells, if it is one of those asked for.
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
	}
	return append(events, e)
}

// name makes one string of all equal names.
func (r *pageReader) name(text []byte) string {
	if name, ok := r.names[string(text)]; ok {
		return name
	}
	name := string(text)
	r.names[name] = name
	return name
}
