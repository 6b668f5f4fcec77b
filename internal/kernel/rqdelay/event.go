package rqdelay

import (
	"bytes"
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// eventsKept is how many events the channel holds for its reader. More would
// say nothing new: after an event the reader looks at all slots.
const eventsKept = 16

// An Event says that the waits of a slot, or the time that BE ran beside it,
// crossed the alarm.
type Event struct {
	At   time.Time // when the last wait ended
	Slot Slot      // the slot that waited
	CPU  unit.CPU  // and the CPU it waited for
	// Waits is how many waits in the window were too long, and Wait is the
	// length of the last one. If it is 0, the slot did not wait, but ran for
	// Beside while Runner ran on the sibling of the CPU.
	Waits  int
	Wait   time.Duration
	Beside time.Duration
	// Runner is the BE slot that had the longest run during that wait, and Ran
	// is its length within the wait. It may be Elsewhere.
	Runner Slot
	Ran    time.Duration
}

// Events delivers events within about a millisecond. Events that are not read
// are dropped. Close closes the channel.
func (p *Probe) Events() <-chan Event { return p.events }

// listen passes on events until the ring is closed.
func (p *Probe) listen() {
	defer close(p.listened)
	defer close(p.events)
	for {
		record, err := p.reader.Read()
		if err != nil {
			return
		}
		var e delayTenonEvent
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &e); err != nil {
			continue // the program sends no such event
		}
		select {
		case p.events <- e.event(time.Now(), monotonic()):
		default:
		}
	}
}

// event translates the kernel's time to that of the wall clock.
func (e delayTenonEvent) event(now time.Time, monotonic time.Duration) Event {
	if e.Waits == 0 {
		return Event{
			At: now.Add(nanoseconds(e.AtNs) - monotonic), Slot: Slot(e.Slot), CPU: unit.CPU(e.Cpu),
			Beside: nanoseconds(e.WaitNs), Runner: Slot(e.Runner), Ran: nanoseconds(e.RunnerNs),
		}
	}
	return Event{
		At: now.Add(nanoseconds(e.AtNs) - monotonic), Slot: Slot(e.Slot), CPU: unit.CPU(e.Cpu),
		Waits: int(e.Waits), Wait: nanoseconds(e.WaitNs), Runner: Slot(e.Runner), Ran: nanoseconds(e.RunnerNs),
	}
}

// monotonic is the time of bpf_ktime_get_ns.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail: the clock exists and t is ours
	return time.Duration(t.Nano())
}
