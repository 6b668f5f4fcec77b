package task

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// settleRounds bounds how often threads are listed anew.
	settleRounds = 20
	// settlePause is before the last look: a thread that is being made has its
	// copy of what the parent had some time before it can be listed.
	settlePause = time.Millisecond
)

// A List lists the threads of a group as they are now.
type List func() ([]int, error)

// A change is something that a thread has or has not, and that its children
// inherit.
type change struct {
	name string
	// done reports whether a thread is as it should be, or is to be left alone.
	done func(tid int) (bool, error)
	make func(tid int) error
	// undo takes it from a thread that was taken for another, if it has it.
	undo func(tid int) error
}

// settle changes threads until a list has nobody left to be changed, and
// returns how many it changed. A thread that is made while its parent waits for
// its turn is as the parent was, one that is made later is as it should be: so
// there are fewer with each look. It gives up on a list that does not come to
// rest.
//
// A thread can end after it was listed, and its number can be a stranger's when
// it is changed. Whoever was changed and is not listed in the end is changed
// back.
func settle(list List, c change) (int, error) {
	changed, failed := map[int]bool{}, map[int]error{}
	settled := false
	var listed []int
	for range settleRounds {
		tids, err := list()
		if err != nil {
			return len(changed), fmt.Errorf("give threads %s: %w", c.name, err)
		}
		listed = tids
		found, err := c.pass(tids, changed, failed)
		if err != nil {
			return len(changed), err
		}
		if !found && settled {
			break
		}
		// One look that finds nobody is enough unless somebody was changed.
		if settled = !found; settled {
			if len(changed) == 0 {
				break
			}
			time.Sleep(settlePause)
		}
	}
	errs := make([]error, 0, len(failed)+1)
	for _, err := range failed {
		errs = append(errs, err)
	}
	if !settled {
		errs = append(errs, fmt.Errorf("give threads %s: new ones came without it %d times in a row", c.name, settleRounds))
	}
	here := make(map[int]bool, len(listed))
	for _, tid := range listed {
		here[tid] = true
	}
	n := 0
	for tid := range changed {
		if here[tid] {
			n++
			continue
		}
		if err := c.undo(tid); err != nil && !errors.Is(err, ErrGone) {
			errs = append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}

// pass changes those who are not as they should be, and reports whether there
// were any. What is not supported is so for all of them, and ends it.
func (c change) pass(tids []int, changed map[int]bool, failed map[int]error) (found bool, err error) {
	for _, tid := range tids {
		if failed[tid] != nil {
			continue
		}
		done, err := c.done(tid)
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

// Fixed is a List of threads that are known.
func Fixed(tids ...int) List {
	return func() ([]int, error) { return slices.Clone(tids), nil }
}
