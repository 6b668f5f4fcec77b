package task

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// resetOnFork is a flag beside the policy (SCHED_RESET_ON_FORK).
const resetOnFork = 0x40000000

// PolicyOf reads the policy of a thread (sched_getscheduler(2)). It costs less
// than Attr.
func PolicyOf(tid int) (Policy, error) {
	p, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("read the policy of thread %d: %w", tid, cause(errno))
	}
	return Policy(p &^ resetOnFork), nil
}

// RealTime reports whether threads of this policy run before all of the fair
// ones.
func (p Policy) RealTime() bool { return p == FIFO || p == RR || p == Deadline }

// Policies counts threads by what can be done about their policy.
type Policies struct {
	Ext      int // Ext
	Fair     int // Normal, Batch and Idle: they can become Ext
	RealTime int // FIFO, RR and Deadline: somebody wants them so
}

// CountPolicies counts the threads; those that have ended are not.
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

// Extend makes threads Ext until all of a list are, and returns how many it has
// changed. Their nice values stay. Real-time threads are left as they are, and
// so is whom spare names (nil: nobody). A thread that was Batch or Idle is
// Normal after Shorten. It gives ErrUnsupported on a kernel without sched_ext.
func Extend(list List, spare func(tid int) bool) (int, error) { return convert(list, Ext, spare) }

// Shorten makes Normal of the Ext threads of a list until there are none, and
// returns how many it has changed.
func Shorten(list List) (int, error) { return convertBack(list, Ext) }

func convert(list List, to Policy, spare func(tid int) bool) (int, error) {
	return settle(list, change{
		name: to.String(),
		done: func(tid int) (bool, error) {
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
		undo: func(tid int) error { return normal(tid, to) },
	})
}

func convertBack(list List, from Policy) (int, error) {
	return settle(list, change{
		name: Normal.String(),
		done: func(tid int) (bool, error) {
			p, err := PolicyOf(tid)
			return p != from, err
		},
		make: func(tid int) error { return normal(tid, from) },
		undo: func(int) error { return nil }, // Normal is what nobody minds
	})
}

// normal makes a thread Normal if it has a policy.
func normal(tid int, from Policy) error {
	p, err := PolicyOf(tid)
	if err != nil || p != from {
		return err
	}
	return SetPolicy(tid, Normal)
}
