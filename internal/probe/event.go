package probe

import (
	"bytes"
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/unit"
)

// eventsKept is how many events wait for their reader. More say nothing new:
// an event is a call to look, and whoever looks sees all.
const eventsKept = 16

// An Event says that the waits of a slot crossed the alarm, or what ran beside
// it did.
type Event struct {
	At   time.Time // when the last wait ended
	Slot Slot      // who waited
	CPU  unit.CPU  // and where
	// Waits is how often the waits in the window had the length that is too
	// long, and Wait the last of them. 0: it did not wait, but ran for Beside
	// while Runner ran on the sibling of the CPU.
	Waits  int
	Wait   time.Duration
	Beside time.Duration
	// Runner is the BE slot that had the longest run during that wait, and Ran
	// is its length within the wait. It may be Elsewhere.
	Runner Slot
	Ran    time.Duration
}

// Events delivers events within about a millisecond. Those that nobody reads
// are dropped. It is closed by Close.
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
			continue // not of the program's making
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
