package isolation

import (
	"errors"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
)

// longSlices reads and sets the slices of threads. It remembers the kernel's
// default slice for reread.Changed, because reading it takes a thread of its
// own. If the default changes, threads with the new default count as threads
// that chose their slice, until the default is read again.
type longSlices struct {
	now  func() time.Time
	read func() (task.Slices, error)

	mu    sync.Mutex
	at    time.Time // time of the reading
	known task.Slices
}

func newLongSlices(now func() time.Time) *longSlices {
	return &longSlices{now: now, read: task.NewSlices}
}

// kinds returns the values by which the kinds of slices are distinguished.
func (l *longSlices) kinds() (task.Slices, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.now()
	if !l.at.IsZero() && at.Sub(l.at) < reread.Changed {
		return l.known, nil
	}
	s, err := l.read()
	if err == nil {
		l.known, l.at = s, at
	}
	return s, err
}

// count returns the number of threads of the fair class with the long slice,
// with the kernel's default slice, and with a slice of their own.
func (l *longSlices) count(tids []int) (long, usual, own int, err error) {
	s, err := l.kinds()
	if err != nil {
		return 0, 0, 0, err
	}
	for _, tid := range tids {
		switch kind, err := s.Kind(tid); {
		case errors.Is(err, task.ErrGone):
		case err != nil:
			return 0, 0, 0, err
		case kind == task.SliceLong:
			long++
		case kind == task.SliceDefault:
			usual++
		case kind == task.SliceKept:
			own++
		}
	}
	return long, usual, own, nil
}

// give gives threads the long slice.
func (l *longSlices) give(list task.List) (int, error) {
	s, err := l.kinds()
	if err != nil {
		return 0, err
	}
	return s.Lengthen(list)
}

// takeBack resets long slices to the kernel's default, and returns the number
// of threads that it changed.
func (l *longSlices) takeBack(list task.List) (int, error) {
	s, err := l.kinds()
	if err != nil {
		return 0, err
	}
	return s.Restore(list)
}
