package isolation

import (
	"errors"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
)

// longSlices reads and sets the slices of threads. It remembers the kernel's
// default slice for the time reread.Changed, because a thread must be started
// to read it. If the default changes, a thread with the new default counts as
// one that chose its slice, until the default is read again.
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

// kinds returns the slices that distinguish the kinds.
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

// count counts threads of the fair class. It returns the numbers of threads
// with the long slice, with the kernel's default slice, and with another slice.
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

// takeBack gives threads with the long slice the kernel's default slice. It
// returns how many threads it changed.
func (l *longSlices) takeBack(list task.List) (int, error) {
	s, err := l.kinds()
	if err != nil {
		return 0, err
	}
	return s.Restore(list)
}
