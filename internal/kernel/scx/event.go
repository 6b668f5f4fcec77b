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

// A Stray is a thread in a BE group that is not SCHED_EXT. Each CPU reports at most
// ten a second, so one that switches often can hide others on its CPU.
type Stray struct {
	At     time.Time
	PID    int // the process, as the initial PID namespace numbers it
	TID    int // the thread
	Policy int // sched(7); real-time policies are reported too
	Cgroup uint64
}

// A LongWait is a BE thread that waits so long that the kernel's watchdog would
// end the scheduler. Give the thread SCHED_OTHER until HasRoom. The event is
// repeated every second or two while the thread waits; if its policy does not
// change, the scheduler ends itself when the thread has waited for 15 s.
type LongWait struct {
	At     time.Time
	PID    int
	TID    int
	CPU    unit.CPU      // the last CPU it ran on
	Wait   time.Duration // since it last ran as SCHED_EXT
	Pinned bool          // it cannot run on all CPUs of its LLC
}

// Exited says that the kernel has taken the scheduler down, and why. It is the
// last event.
type Exited struct{ Exit }

func (Stray) event()    {}
func (LongWait) event() {}
func (Exited) event()   {}

// eventsKept is how many events the channel holds for its reader.
const eventsKept = 256

// Events delivers the scheduler's events. Events that are not read are dropped,
// except Exited. The channel is closed after Exited and by Close.
func (s *Scheduler) Events() <-chan Event { return s.events }

// listen passes on events until the ring is closed or the scheduler has ended.
func (s *Scheduler) listen() {
	defer close(s.listened)
	defer close(s.events)
	for {
		s.reader.SetDeadline(time.Now().Add(time.Second))
		record, err := s.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The ring may have had no room for the last event.
			if end, ended := s.ended(); ended {
				s.exited(end)
				return
			}
			continue
		}
		if err != nil {
			return
		}
		var e scheduler613ScxEvent
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &e); err != nil {
			continue // the program sends no such event
		}
		if e.Kind == scheduler613ScxEventKindSCX_EXITED {
			if end, ended := s.ended(); ended {
				s.exited(end)
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

// ended reads why the scheduler has ended, unless this process ended it.
func (s *Scheduler) ended() (Exit, bool) {
	end, err := s.readExit()
	return end, err == nil && end.Kind != ExitNone && !s.detaching.Load()
}

// exited makes room in the channel for the last event.
func (s *Scheduler) exited(end Exit) {
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

// event translates the kernel's time to that of the wall clock.
func (e scheduler613ScxEvent) event(now time.Time, monotonic time.Duration) Event {
	at := now.Add(time.Duration(e.AtNs) - monotonic)
	if e.Kind == scheduler613ScxEventKindSCX_LONG_WAIT {
		return LongWait{At: at, PID: int(e.Pid), TID: int(e.Tid), CPU: unit.CPU(e.Cpu), Wait: time.Duration(e.WaitNs), Pinned: e.Pinned != 0}
	}
	return Stray{At: at, PID: int(e.Pid), TID: int(e.Tid), Policy: int(e.Policy), Cgroup: e.Cgroup}
}

// monotonic is the time of bpf_ktime_get_ns.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail: the clock exists and t is ours
	return time.Duration(t.Nano())
}
