// Package task reads and writes the scheduling attributes of single threads:
// policy, nice value, time slice, affinity and core-scheduling cookie.
//
// A tid is a thread id as the kernel sees it; 0 is the calling thread, which a
// goroutine must lock first. Children that a thread creates later inherit its
// attributes; its siblings do not change.
package task

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnsupported means that this kernel or machine cannot do it.
var ErrUnsupported = errors.New("not supported here")

// ErrGone means that the thread has ended.
var ErrGone = errors.New("no such thread")

// Policy is a scheduling policy, with the kernel's number (sched(7)).
type Policy int

// The policies. Idle is below every other fair task, but not below those of
// an idle cgroup; Ext needs a sched_ext scheduler (Linux 6.12), without which
// it behaves as Normal.
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

// SchedAttr is how the kernel schedules a thread (sched_setattr(2)).
type SchedAttr struct {
	Policy Policy
	// Nice is -20 to 19. Idle, FIFO and RR do not use it, and setting them
	// leaves the present one.
	Nice int
	// Priority of FIFO and RR is 1 to 99, and 0 for all others.
	Priority int
	// Slice is how long a thread of policy Normal, Batch or Ext asks to run at
	// once; the kernel serves a smaller slice sooner (EEVDF, Linux 6.12; 100 µs
	// to 100 ms). 0 sets the kernel's default. It reads as 0 on older kernels;
	// newer ones do not tell the default from a slice that was set to the same
	// value.
	Slice time.Duration
	// ResetOnFork gives children Normal instead of FIFO or RR, and nice 0
	// instead of a negative one.
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

// SetAttr writes all attributes of a thread. Without privileges a thread may
// only be made less important: EPERM. Values out of range give EINVAL.
// Deadline needs parameters that SchedAttr does not have: EINVAL.
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
	// The kernel clamps a nice value out of range, and would so hide a mistake.
	if s.Nice < -20 || s.Nice > 19 {
		return fmt.Errorf("set %v on thread %d: nice %d is not from -20 to 19: %w", s.Policy, tid, s.Nice, unix.EINVAL)
	}
	if err := unix.SchedSetAttr(tid, &a, 0); err != nil {
		return fmt.Errorf("set %v nice %d priority %d slice %v on thread %d: %w",
			s.Policy, s.Nice, s.Priority, s.Slice, tid, cause(err))
	}
	return nil
}

// SetPolicy changes the policy of a thread to one without real-time priority
// and keeps its nice value, slice and reset-on-fork. (The kernel's own flag
// for this, SCHED_FLAG_KEEP_PARAMS, keeps the policy as well.)
func SetPolicy(tid int, p Policy) error {
	s, err := Attr(tid)
	if err != nil {
		return err
	}
	s.Policy, s.Priority = p, 0
	return SetAttr(tid, s)
}

// SetIdle puts a thread below all normal ones. Every user may do this to their
// own threads; the way back needs an RLIMIT_NICE that allows the nice value.
func SetIdle(tid int) error { return SetPolicy(tid, Idle) }

// cause adds ErrGone to the errno of an ended thread.
func cause(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}
