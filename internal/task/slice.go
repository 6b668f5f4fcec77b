package task

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// LongSlice is nearly the longest slice that the kernel gives a fair thread, 100
// ms: it asks for so much at once, and for it last. The odd value, which the
// kernel keeps, tells our threads from those that ask for the longest by
// themselves.
const LongSlice = 99_997 * time.Microsecond

// A SliceKind says whose slice a thread has.
type SliceKind int

// The kinds.
const (
	// SliceNone: its policy is not of the fair class.
	SliceNone SliceKind = iota
	// SliceKept: its own, or its policy is Idle.
	SliceKept
	// SliceDefault: the kernel's.
	SliceDefault
	// SliceLong: LongSlice.
	SliceLong
)

// Slices tells the slices of threads apart. The kernel's default depends on the
// number of CPUs, and an administrator may change it.
type Slices struct{ usual time.Duration }

// NewSlices learns the kernel's default. It gives ErrUnsupported on kernels
// without slices of threads (Linux 6.12).
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
		return Slices{}, fmt.Errorf("learn the kernel's slice: %w", err)
	}
	return Slices{usual}, nil
}

// Kind reads whose slice a thread has.
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

// Lengthen gives threads LongSlice until all of a list have it, and returns how
// many it has changed. Threads with a slice of their own keep it, and so do
// those of other policies than Normal and Batch.
func (s Slices) Lengthen(list List) (int, error) {
	return settle(list, change{
		name: "a long slice",
		done: func(tid int) (bool, error) {
			kind, err := s.Kind(tid)
			return kind != SliceDefault, err
		},
		make: func(tid int) error { return setSlice(tid, LongSlice) },
		undo: func(tid int) error { return s.unset(tid) },
	})
}

// Restore gives the threads of a list that have LongSlice the kernel's, until
// none has it, and returns how many it has changed.
func (s Slices) Restore(list List) (int, error) {
	return settle(list, change{
		name: "the kernel's slice",
		done: func(tid int) (bool, error) {
			kind, err := s.Kind(tid)
			return kind != SliceLong, err
		},
		make: s.unset,
		undo: func(int) error { return nil }, // the kernel's slice is what nobody minds
	})
}

func (s Slices) unset(tid int) error {
	if kind, err := s.Kind(tid); err != nil || kind != SliceLong {
		return err
	}
	return setSlice(tid, 0)
}

// setSlice keeps all else that the thread has: also a policy that somebody gives
// it at this moment.
func setSlice(tid int, slice time.Duration) error {
	a, err := Attr(tid)
	if err != nil {
		return err
	}
	a.Slice = slice
	return setAttr(tid, a, unix.SCHED_FLAG_KEEP_POLICY)
}
