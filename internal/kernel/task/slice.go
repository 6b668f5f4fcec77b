package task

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// LongSlice is slightly shorter than the longest slice that a fair thread can
// have (100 ms). The fair scheduler (EEVDF) serves threads with a long slice
// last. No program is likely to choose this value, so it shows that Tenon
// changed the thread.
const LongSlice = 99_997 * time.Microsecond

// A SliceKind says where a thread's slice comes from.
type SliceKind int

// The kinds of slices.
const (
	// SliceNone: the thread is not in the fair class.
	SliceNone SliceKind = iota
	// SliceKept: the thread chose its slice itself, or its policy is Idle.
	SliceKept
	// SliceDefault: the slice is the kernel's default.
	SliceDefault
	// SliceLong: the slice is LongSlice, which only Tenon sets.
	SliceLong
)

// Slices tells whether the slice of a thread is the kernel's default, is the
// LongSlice of Tenon, or was chosen by the thread itself. The default depends on
// the number of CPUs and on the administrator's settings.
type Slices struct{ usual time.Duration }

// NewSlices reads the kernel's default. It returns ErrUnsupported on kernels
// without a slice per thread (before Linux 6.12).
func NewSlices() (Slices, error) {
	var usual time.Duration
	t := newOSThread()
	defer t.end()
	err := t.do(func() error {
		before, err := Attr(0)
		if err != nil {
			return err
		}
		own := before
		own.Policy, own.Priority, own.Slice = Normal, 0, 0
		if err := SetAttr(0, own); err != nil {
			return err
		}
		if own, err = Attr(0); err != nil {
			return err
		}
		usual = own.Slice
		if own != before {
			return SetAttr(0, before)
		}
		return nil
	})
	if err == nil && usual == 0 {
		err = fmt.Errorf("threads have no slices: %w", ErrUnsupported)
	}
	if err != nil {
		return Slices{}, fmt.Errorf("read the kernel's default slice: %w", err)
	}
	return Slices{usual}, nil
}

// Kind reads the slice of a thread and returns its kind.
func (s Slices) Kind(tid int) (SliceKind, error) {
	a, err := Attr(tid)
	switch {
	case err != nil:
		return SliceNone, err
	case a.Policy == Idle:
		return SliceKept, nil
	case a.Policy != Normal && a.Policy != Batch:
		return SliceNone, nil
	case a.Slice == LongSlice:
		return SliceLong, nil
	case a.Slice == s.usual:
		return SliceDefault, nil
	}
	return SliceKept, nil
}

// Lengthen gives threads LongSlice until all threads of the list have it, and
// returns the number of changed threads. It skips threads that chose a slice
// themselves and threads whose policy is not Normal or Batch.
func (s Slices) Lengthen(list List) (int, error) {
	return settle(list, change{
		name: "a long slice",
		isDone: func(tid int) (bool, error) {
			kind, err := s.Kind(tid)
			return kind != SliceDefault, err
		},
		make: func(tid int) error { return setSlice(tid, LongSlice) },
		undo: func(tid int) error { return s.unset(tid) },
	})
}

// Restore gives threads with LongSlice the kernel's default slice, until no
// thread of the list has LongSlice. It returns the number of changed threads.
func (s Slices) Restore(list List) (int, error) {
	return settle(list, change{
		name: "the kernel's slice",
		isDone: func(tid int) (bool, error) {
			kind, err := s.Kind(tid)
			return kind != SliceLong, err
		},
		make: s.unset,
		undo: func(int) error { return nil }, // the kernel's default is safe for every thread
	})
}

func (s Slices) unset(tid int) error {
	if kind, err := s.Kind(tid); err != nil || kind != SliceLong {
		return err
	}
	return setSlice(tid, 0)
}

// setSlice sets only the slice of a thread. The other attributes stay, even a
// policy that another process sets at the same moment.
func setSlice(tid int, slice time.Duration) error {
	a, err := Attr(tid)
	if err != nil {
		return err
	}
	a.Slice = slice
	return setAttr(tid, a, unix.SCHED_FLAG_KEEP_POLICY)
}
