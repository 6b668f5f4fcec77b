package rqdelay

import (
	"bytes"
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// eventsKept is the capacity of the channel of events. A larger one would not
// help, because the reader examines all slots after one event.
const eventsKept = 16

// An Event reports one of two facts about a workload. Its threads waited longer
// than the Alarm allows, or they ran for too long while BE ran on the sibling
// of their CPU.
type Event struct {
	At   time.Time // the end of the last wait, or the time of the alarm about Beside
	Slot Slot      // the slot of the workload
	CPU  unit.CPU  // the CPU for which it waited, or on which it ran
	// Waits is the number of waits in the window that were too long. Wait is the
	// length of the last one. Both are 0 if the event is about BE on the sibling.
	// Beside is then the time for which Runner was there beside the workload.
	Waits  int
	Wait   time.Duration
	Beside time.Duration
	// Runner is the BE slot that ran longest during the wait, or Elsewhere. Ran
	// is the time for which Runner ran.
	Runner Slot
	Ran    time.Duration
}

// Events returns the channel of events, which arrive within about a millisecond.
// If the channel is full, new events are dropped. Close closes the channel.
func (p *Probe) Events() <-chan Event { return p.events }

// listen copies events to the channel until the ring is closed.
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
			continue // the program never sends an event of this size
		}
		select {
		case p.events <- e.event(time.Now(), monotonic()):
		default:
		}
	}
}

// event converts the kernel's time to the wall clock.
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

// monotonic returns the time of the clock of bpf_ktime_get_ns.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail: the clock exists and t is valid
	return time.Duration(t.Nano())
}
