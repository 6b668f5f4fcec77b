package isolation

import (
	"errors"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
)

// longSlices reads and sets the time slices of threads. It caches the kernel's
// default slice for reread.Changed, because reading it takes a new thread. If
// the default changes, threads with the new default look until then like
// threads that chose their slice.
type longSlices struct {
	now  func() time.Time
	read func() (task.Slices, error)

	mu    sync.Mutex
	at    time.Time // when known was read
	known task.Slices
}

func newLongSlices(now func() time.Time) *longSlices {
	return &longSlices{now: now, read: task.NewSlices}
}

// kinds returns the kernel's default slice and the long slice, from the cache if possible.
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

// count counts the threads of the fair class by their slice: the long slice,
// the kernel's default, or another one, which Tenon does not change.
func (l *longSlices) count(tids []int) (n tally, err error) {
	s, err := l.kinds()
	if err != nil {
		return tally{}, err
	}
	for _, tid := range tids {
		switch kind, err := s.Kind(tid); {
		case errors.Is(err, task.ErrGone):
		case err != nil:
			return tally{}, err
		case kind == task.SliceLong:
			n.be++
		case kind == task.SliceDefault:
			n.others++
		case kind == task.SliceKept:
			n.left++
		}
	}
	return n, nil
}

// give sets the long slice on threads that have the default slice.
func (l *longSlices) give(list task.List) (int, error) {
	s, err := l.kinds()
	if err != nil {
		return 0, err
	}
	return s.Lengthen(list)
}

func (l *longSlices) takeBack(list task.List) error {
	_, err := l.strip(list)
	return err
}

func (l *longSlices) sweep(list task.List) error { return l.takeBack(list) }

// strip gives the default slice to threads that have the long slice.
func (l *longSlices) strip(list task.List) (int, error) {
	s, err := l.kinds()
	if err != nil {
		return 0, err
	}
	return s.Restore(list)
}

func (*longSlices) unused() {}
func (*longSlices) forget() {}
