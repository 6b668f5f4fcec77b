package task

import (
	"errors"
	"testing"
	"time"
)

// kernelSlices reads the kernel's default slice. It skips the test on kernels
// without a slice per thread.
func kernelSlices(t *testing.T) Slices {
	t.Helper()
	s, err := NewSlices()
	if errors.Is(err, ErrUnsupported) {
		t.Skip("kernel before 6.12: threads have no slice of their own")
	} else if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSlicesAreLengthenedAndRestored(t *testing.T) {
	s := kernelSlices(t)
	usual, batch, own, idle := sleeper(t), sleeper(t), sleeper(t), sleeper(t)
	fresh := mustAttr(t, usual)
	higher := nicer(fresh).Nice
	for tid, a := range map[int]SchedAttr{
		batch: {Policy: Batch, Nice: higher},
		own:   {Nice: fresh.Nice, Slice: 20 * time.Millisecond},
		idle:  {Policy: Idle, Nice: fresh.Nice},
	} {
		if err := SetAttr(tid, a); err != nil {
			t.Fatal(err)
		}
	}
	list := Fixed(usual, batch, own, idle)
	check := func(when string, of map[int]SliceKind) {
		t.Helper()
		for tid, want := range of {
			if got, err := s.Kind(tid); got != want || err != nil {
				t.Errorf("%s: the slice of %+v is of kind %d, %v, want %d", when, mustAttr(t, tid), got, err, want)
			}
		}
	}
	check("before", map[int]SliceKind{usual: SliceDefault, batch: SliceDefault, own: SliceKept, idle: SliceKept})
	if n, err := s.Lengthen(list); n != 2 || err != nil {
		t.Errorf("lengthened %d, %v, want 2", n, err)
	}
	check("after", map[int]SliceKind{usual: SliceLong, batch: SliceLong, own: SliceKept, idle: SliceKept})
	if a := mustAttr(t, batch); a != (SchedAttr{Policy: Batch, Nice: higher, Slice: LongSlice}) {
		t.Errorf("after Lengthen the other attributes are %+v", a)
	}
	if n, err := s.Lengthen(list); n != 0 || err != nil {
		t.Errorf("lengthened %d once more, %v", n, err)
	}
	if n, err := s.Restore(list); n != 2 || err != nil {
		t.Errorf("restored %d, %v, want 2", n, err)
	}
	check("in the end", map[int]SliceKind{usual: SliceDefault, batch: SliceDefault, own: SliceKept, idle: SliceKept})
	if got := mustAttr(t, usual); got != fresh {
		t.Errorf("restored to %+v, was %+v", got, fresh)
	}
	if mine := mustAttr(t, 0); mine.Slice == LongSlice {
		t.Error("this process has the long slice itself")
	}
}

// TestSlicesOfStrangersComeBack changes a thread that is missing in the next
// list, as if another process had received its tid. Lengthen must restore the
// slice of that thread.
func TestSlicesOfStrangersComeBack(t *testing.T) {
	s := kernelSlices(t)
	tid := sleeper(t)
	looks := 0
	list := func() ([]int, error) {
		if looks++; looks == 1 {
			return []int{tid}, nil
		}
		return nil, nil
	}
	if n, err := s.Lengthen(list); n != 0 || err != nil {
		t.Errorf("lengthened %d, %v, want 0", n, err)
	}
	if kind, err := s.Kind(tid); kind != SliceDefault || err != nil {
		t.Errorf("a thread outside the group has a slice of kind %d, %v", kind, err)
	}
}
