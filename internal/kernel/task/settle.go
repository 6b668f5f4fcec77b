package task

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// settleRounds limits how often settle reads the list of threads.
	settleRounds = 20
	// settlePause is the pause before the last list. A new thread gets the
	// attributes of its parent shortly before it appears in a list.
	settlePause = time.Millisecond
)

// A List returns the present threads of a group. If it returns threads and an
// error, it has missed some.
type List func() ([]int, error)

// A change sets an attribute of a thread. Children of the thread inherit the
// attribute.
type change struct {
	name string
	// isDone reports whether a thread has the attribute, or must not be changed.
	isDone func(tid int) (bool, error)
	make   func(tid int) error
	// undo removes the attribute from a thread that received it by mistake.
	undo func(tid int) error
}

// settle changes threads until a list has no thread left to change, and returns
// the number of changed threads. A child inherits the attribute of its parent:
// if it is created before the parent is changed, it must be changed, too. So
// each list has fewer threads to change. settle fails after settleRounds lists.
//
// A thread can end after it was listed, and a thread of another process can get
// its tid before the change. Therefore settle undoes the change of every thread
// that is not in the last list. If the lists miss threads, settle undoes nothing,
// and returns the error of the last list after it has changed the others.
func settle(list List, c change) (int, error) {
	changed, failed := map[int]bool{}, map[int]error{}
	settled := false
	var listed []int
	var missed error
	for range settleRounds {
		tids, err := list()
		if err != nil && len(tids) == 0 {
			return len(changed), fmt.Errorf("give threads %s: %w", c.name, err)
		}
		listed, missed = tids, err
		found, err := c.pass(tids, changed, failed)
		if err != nil {
			return len(changed), err
		}
		if !found && settled {
			break
		}
		// The loop ends after two lists in a row without a thread to change. If no
		// thread has been changed at all, it ends after the first one.
		if settled = !found; settled {
			if len(changed) == 0 {
				break
			}
			time.Sleep(settlePause)
		}
	}
	errs := make([]error, 0, len(failed)+2)
	if missed != nil {
		errs = append(errs, fmt.Errorf("give threads %s: %w", c.name, missed))
	}
	for _, err := range failed {
		errs = append(errs, err)
	}
	if !settled {
		errs = append(errs, fmt.Errorf("give threads %s: %d lists in a row had new threads without it", c.name, settleRounds))
	}
	here := make(map[int]bool, len(listed))
	for _, tid := range listed {
		here[tid] = true
	}
	n := 0
	for tid := range changed {
		if here[tid] || missed != nil {
			n++
			continue
		}
		if err := c.undo(tid); err != nil && !errors.Is(err, ErrGone) {
			errs = append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}

// pass changes the listed threads that lack the attribute, and reports in found
// whether there were any. It stops at ErrUnsupported, because all other threads
// would give this error, too.
func (c change) pass(tids []int, changed map[int]bool, failed map[int]error) (found bool, err error) {
	for _, tid := range tids {
		if failed[tid] != nil {
			continue
		}
		done, err := c.isDone(tid)
		if err == nil && done {
			continue
		}
		if err == nil {
			found = true
			if err = c.make(tid); err == nil {
				changed[tid] = true
			}
		}
		switch {
		case errors.Is(err, ErrUnsupported):
			return found, err
		case err != nil && !errors.Is(err, ErrGone):
			failed[tid] = err
		}
	}
	return found, nil
}

// Fixed is a List that always returns the given threads.
func Fixed(tids ...int) List {
	return func() ([]int, error) { return slices.Clone(tids), nil }
}
