package task

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// resetOnFork is a flag (SCHED_RESET_ON_FORK) that the kernel adds to the
// policy number.
const resetOnFork = 0x40000000

// PolicyOf reads the policy of a thread (sched_getscheduler(2)). It is cheaper
// than Attr.
func PolicyOf(tid int) (Policy, error) {
	p, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("read the policy of thread %d: %w", tid, cause(errno))
	}
	return Policy(p &^ resetOnFork), nil
}

// RealTime reports whether the kernel always runs threads of this policy before
// fair threads.
func (p Policy) RealTime() bool { return p == FIFO || p == RR || p == Deadline }

// Policies holds numbers of threads, grouped by what Extend does with their policy.
type Policies struct {
	Ext      int // policy Ext
	Fair     int // Normal, Batch and Idle: Extend makes them Ext
	RealTime int // FIFO, RR and Deadline: Extend does not change them, because their owner chose real time
}

// CountPolicies counts the threads by policy. It skips threads that have ended.
func CountPolicies(tids []int) (Policies, error) {
	var n Policies
	for _, tid := range tids {
		p, err := PolicyOf(tid)
		switch {
		case errors.Is(err, ErrGone):
		case err != nil:
			return n, err
		case p == Ext:
			n.Ext++
		case p.RealTime():
			n.RealTime++
		default:
			n.Fair++
		}
	}
	return n, nil
}

// Extend gives threads the policy Ext until all threads of the list have it,
// and returns the number of changed threads. It keeps nice values. It skips
// real-time threads, and threads for which the function spare returns true;
// spare may be nil. The old policy is lost: Shorten later makes all Ext threads
// Normal, even those that were Batch or Idle. On a kernel without sched_ext,
// Extend returns ErrUnsupported.
func Extend(list List, spare func(tid int) bool) (int, error) { return convert(list, Ext, spare) }

// Shorten makes the Ext threads of the list Normal until no thread is Ext, and
// returns the number of changed threads.
func Shorten(list List) (int, error) { return convertBack(list, Ext) }

func convert(list List, to Policy, spare func(tid int) bool) (int, error) {
	return settle(list, change{
		name: to.String(),
		isDone: func(tid int) (bool, error) {
			p, err := PolicyOf(tid)
			return p == to || p.RealTime() || spare != nil && spare(tid), err
		},
		make: func(tid int) error {
			err := SetPolicy(tid, to)
			if errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("%w: %w", ErrUnsupported, err)
			}
			return err
		},
		undo: func(tid int) error { return makeNormal(tid, to) },
	})
}

func convertBack(list List, from Policy) (int, error) {
	return settle(list, change{
		name: Normal.String(),
		isDone: func(tid int) (bool, error) {
			p, err := PolicyOf(tid)
			return p != from, err
		},
		make: func(tid int) error { return makeNormal(tid, from) },
		undo: func(int) error { return nil }, // Normal is the default of every thread
	})
}

// makeNormal makes a thread Normal if it has the given policy.
func makeNormal(tid int, from Policy) error {
	p, err := PolicyOf(tid)
	if err != nil || p != from {
		return err
	}
	return SetPolicy(tid, Normal)
}
