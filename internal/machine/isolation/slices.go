package isolation

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/task"
)

// countSlices counts the threads of the fair class with the long slice, with
// the kernel's default, and with one of their own.
func countSlices(tids []int) (long, usual, own int, err error) {
	s, err := task.NewSlices()
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

// lengthen sets the long slice.
func lengthen(list task.List) (int, error) {
	s, err := task.NewSlices()
	if err != nil {
		return 0, err
	}
	return s.Lengthen(list)
}

// unlengthen resets long slices to the kernel's default, and returns how many.
func unlengthen(list task.List) (int, error) {
	s, err := task.NewSlices()
	if err != nil {
		return 0, err
	}
	return s.Restore(list)
}
