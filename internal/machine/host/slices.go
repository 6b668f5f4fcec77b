package host

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/task"
)

// countSlices counts the threads of the fair class: those that have the long
// slice, the kernel's, and one of their own.
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

// lengthen gives threads the long slice.
func lengthen(list task.List) (int, error) {
	s, err := task.NewSlices()
	if err != nil {
		return 0, err
	}
	return s.Lengthen(list)
}

// unlengthen gives those that have it the kernel's, and returns how many had.
func unlengthen(list task.List) (int, error) {
	s, err := task.NewSlices()
	if err != nil {
		return 0, err
	}
	return s.Restore(list)
}
