package task

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// settleRounds bounds how often settle lists the threads anew.
	settleRounds = 20
	// settlePause passes before the last list: a new thread copies the
	// attributes of its parent some time before it can be listed.
	settlePause = time.Millisecond
)

// A List lists the threads of a group as they are now.
type List func() ([]int, error)

// A change is an attribute that a thread has or has not, and that its children
// inherit.
type change struct {
	name string
	// done reports whether the thread has the attribute, or must be left alone.
	done func(tid int) (bool, error)
	make func(tid int) error
	// undo takes the attribute from a thread that received it by mistake.
	undo func(tid int) error
}

// settle changes threads until a list has no thread left to change, and returns
// how many it changed. A thread that is created before its parent was changed
// has the old attribute, one that is created later the new one: so each list
// has fewer threads to change. settle gives up on a list that does not come to
// rest.
//
// A thread can end after it was listed, and another process can have its number
// when it is changed. settle changes back every thread that is not in the last
// list.
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
		// One list without a thread to change is enough, unless a thread was
		// changed before.
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

// pass changes the threads that do not have the attribute yet, and reports
// whether there were any. ErrUnsupported holds for all threads, and ends the
// pass.
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
