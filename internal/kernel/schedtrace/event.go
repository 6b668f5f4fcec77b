package schedtrace

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A Kind is the type of an [Event].
type Kind uint8

// The events of the scheduler that are recorded (include/trace/events/sched.h).
const (
	Switch Kind = iota + 1 // sched_switch: a CPU goes from one thread to another
	Wake                   // sched_wakeup, sched_wakeup_new: a thread is ready to run
)

// A Thread identifies a thread in an event. The idle loop of each CPU
// ("swapper") has TID 0.
type Thread struct {
	TID  int
	Comm string // at most 15 bytes
}

// An Event is one event of the kernel's scheduler.
type Event struct {
	At   time.Duration // on the monotonic clock
	CPU  unit.CPU      // where it happened
	Kind Kind
	// Thread is the thread that was woken, or that got the CPU. Prev lost the CPU.
	Thread, Prev Thread
	Target       unit.CPU // of a Wake: the CPU to which the kernel sent the thread
}
