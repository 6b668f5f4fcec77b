// Package task reads and writes the scheduling attributes of single threads:
// policy, nice value, time slice, affinity and core-scheduling cookie.
//
// A tid is a thread id in the PID namespace of this process. Tid 0 is the
// calling thread, so the goroutine must be locked to its thread first. A change
// affects the thread and the children that it creates later, but not its
// existing children and siblings.
package task

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnsupported means that this kernel or this machine does not have the feature.
var ErrUnsupported = errors.New("not supported here")

// ErrGone means that the thread has ended.
var ErrGone = errors.New("no such thread")

// Policy is a scheduling policy, with the kernel's number (sched(7)).
type Policy int

// The policies. A thread of policy Idle gives way to every other fair thread,
// except the threads of an idle cgroup. Ext needs a sched_ext scheduler (Linux
// 6.12). Without one, it has the same effect as Normal.
const (
	Normal   Policy = unix.SCHED_NORMAL
	FIFO     Policy = unix.SCHED_FIFO
	RR       Policy = unix.SCHED_RR
	Batch    Policy = unix.SCHED_BATCH
	Idle     Policy = unix.SCHED_IDLE
	Deadline Policy = unix.SCHED_DEADLINE
	Ext      Policy = unix.SCHED_EXT
)

// String prints the kernel's name, such as "SCHED_IDLE".
func (p Policy) String() string {
	switch p {
	case Normal:
		return "SCHED_NORMAL"
	case FIFO:
		return "SCHED_FIFO"
	case RR:
		return "SCHED_RR"
	case Batch:
		return "SCHED_BATCH"
	case Idle:
		return "SCHED_IDLE"
	case Deadline:
		return "SCHED_DEADLINE"
	case Ext:
		return "SCHED_EXT"
	}
	return fmt.Sprintf("policy %d", int(p))
}

// SchedAttr holds the scheduling attributes of a thread (sched_setattr(2)).
type SchedAttr struct {
	Policy Policy
	// Nice is -20 to 19. It has no effect on threads of the policies Idle, FIFO
	// and RR. Setting such a policy keeps the present nice value.
	Nice int
	// Priority is 1 to 99 for FIFO and RR, and 0 for all other policies.
	Priority int
	// Slice is the time that a thread of policy Normal, Batch or Ext requests
	// to run without preemption (100 µs to 100 ms; Linux 6.12). The fair
	// scheduler (EEVDF) serves threads with a smaller slice sooner. Writing 0
	// sets the kernel's default. A newer kernel then returns the default, like
	// a slice that was set; an older kernel returns 0.
	Slice time.Duration
	// ResetOnFork changes the attributes of the thread's children. They start as
	// Normal instead of FIFO or RR, and with nice 0 instead of a negative value.
	ResetOnFork bool
}

// Attr reads the attributes of a thread. It returns ErrGone for a thread that
// has ended.
func Attr(tid int) (SchedAttr, error) {
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return SchedAttr{}, fmt.Errorf("read scheduling attributes of thread %d: %w", tid, cause(err))
	}
	s := SchedAttr{
		Policy: Policy(a.Policy), Nice: int(a.Nice), Priority: int(a.Priority),
		ResetOnFork: a.Flags&unix.SCHED_FLAG_RESET_ON_FORK != 0,
	}
	if s.Policy != Deadline {
		s.Slice = time.Duration(a.Runtime)
	}
	return s, nil
}

// SetAttr writes all attributes of a thread. It returns EPERM if an
// unprivileged caller raises the priority of a thread, and EINVAL if a value is
// out of range. The policy Deadline also gives EINVAL, because SchedAttr lacks
// its parameters.
func SetAttr(tid int, s SchedAttr) error { return setAttr(tid, s, 0) }

func setAttr(tid int, s SchedAttr, flags uint64) error {
	a := unix.SchedAttr{
		Flags:  flags,
		Policy: uint32(s.Policy), Nice: int32(s.Nice), Priority: uint32(s.Priority), Runtime: uint64(s.Slice),
	}
	if s.ResetOnFork {
		a.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
	}
	if s.Policy != Normal && s.Policy != Batch && s.Policy != Ext {
		a.Runtime = 0
	}
	// The kernel clamps a nice value out of range, which would hide a mistake.
	if s.Nice < -20 || s.Nice > 19 {
		return fmt.Errorf("set %v on thread %d: nice %d is not from -20 to 19: %w", s.Policy, tid, s.Nice, unix.EINVAL)
	}
	if err := unix.SchedSetAttr(tid, &a, 0); err != nil {
		return fmt.Errorf("set %v nice %d priority %d slice %v on thread %d: %w",
			s.Policy, s.Nice, s.Priority, s.Slice, tid, cause(err))
	}
	return nil
}

// SetPolicy gives a thread a policy other than a real-time one. It keeps the
// nice value, the slice and reset-on-fork. (The kernel's flag
// SCHED_FLAG_KEEP_PARAMS would keep the old policy as well.)
func SetPolicy(tid int, p Policy) error {
	s, err := Attr(tid)
	if err != nil {
		return err
	}
	s.Policy, s.Priority = p, 0
	return SetAttr(tid, s)
}

// SetIdle gives a thread the policy Idle. Users may do this to their own
// threads. They can undo it only if RLIMIT_NICE allows the nice value.
func SetIdle(tid int) error { return SetPolicy(tid, Idle) }

// cause adds ErrGone to err if its errno says that the thread has ended.
func cause(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}
