package scx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// An Event is one of Stray, LongWait and Exited.
type Event interface{ event() }

// A Stray is a thread in a BE group whose policy is not SCHED_EXT. At most ten
// strays are reported per second and CPU, so a thread that switches often can
// hide others on the same CPU.
type Stray struct {
	At     time.Time
	PID    int // the process, numbered in the initial PID namespace
	TID    int // the thread
	Policy int // sched(7); real-time policies are reported too
	Cgroup uint64
}

// A LongWait is a BE thread that has waited so long that the kernel's watchdog
// may soon end the scheduler. The owner should give the thread SCHED_OTHER
// until HasRoom returns true. The event is repeated every second or two while
// the thread waits. If the thread still has SCHED_EXT after 15 s of waiting,
// the scheduler ends itself.
type LongWait struct {
	At     time.Time
	PID    int
	TID    int
	CPU    unit.CPU      // the last CPU it ran on
	Wait   time.Duration // since it last ran as SCHED_EXT
	Pinned bool          // its affinity excludes some CPUs of its LLC
}

// Exited reports that the kernel has unloaded the scheduler, and why. It is the
// last event.
type Exited struct{ Exit }

func (Stray) event()    {}
func (LongWait) event() {}
func (Exited) event()   {}

// eventsKept is the capacity of the channel of events.
const eventsKept = 256

// Events delivers the scheduler's events. If the channel is full, all events
// but Exited are dropped. The channel is closed after Exited, and by Close.
func (s *Scheduler) Events() <-chan Event { return s.events }

// listen copies events from the ring to the channel, until the ring is closed
// or the scheduler has ended.
func (s *Scheduler) listen() {
	defer close(s.listened)
	defer close(s.events)
	for {
		s.reader.SetDeadline(time.Now().Add(time.Second))
		record, err := s.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The event of the end is missing if the ring buffer was full.
			if end, ended := s.ended(); ended {
				s.sendExit(end)
				return
			}
			continue
		}
		if err != nil {
			return
		}
		var e scheduler613ScxEvent
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &e); err != nil {
			continue // the program never sends such an event
		}
		if e.Kind == scheduler613ScxEventKindSCX_EXITED {
			if end, ended := s.ended(); ended {
				s.sendExit(end)
				return
			}
			continue
		}
		select {
		case s.events <- e.event(time.Now(), monotonic()):
		default:
		}
	}
}

// ended returns how the scheduler ended. It returns false while the scheduler
// runs, and if this process ended it.
func (s *Scheduler) ended() (Exit, bool) {
	end, err := s.readExit()
	return end, err == nil && end.Kind != ExitNone && !s.detaching.Load()
}

// sendExit sends the last event. If the channel is full, it drops older events
// to make room.
func (s *Scheduler) sendExit(end Exit) {
	for {
		select {
		case s.events <- Exited{end}:
			return
		default:
		}
		select {
		case <-s.events:
		default:
		}
	}
}

// event converts the kernel's time to the wall clock.
func (e scheduler613ScxEvent) event(now time.Time, monotonic time.Duration) Event {
	at := now.Add(time.Duration(e.AtNs) - monotonic)
	if e.Kind == scheduler613ScxEventKindSCX_LONG_WAIT {
		return LongWait{At: at, PID: int(e.Pid), TID: int(e.Tid), CPU: unit.CPU(e.Cpu), Wait: time.Duration(e.WaitNs), Pinned: e.Pinned != 0}
	}
	return Stray{At: at, PID: int(e.Pid), TID: int(e.Tid), Policy: int(e.Policy), Cgroup: e.Cgroup}
}

// monotonic returns the time on the clock that bpf_ktime_get_ns uses.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail: the clock exists and t is valid
	return time.Duration(t.Nano())
}
