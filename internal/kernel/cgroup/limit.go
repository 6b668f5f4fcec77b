package cgroup

import (
	"fmt"
	"math"
)

// Maximum is the value of a file that holds one number from 0 or "max".
type Maximum struct{ Max int64 }

// NoMaximum means no limit.
const NoMaximum int64 = math.MaxInt64

// limits holds the controller of each file with a Maximum.
//
// pids.max limits the number of tasks (processes and threads) in a group and all
// groups below it. It may be smaller than the present number of tasks: it only
// prevents new tasks. For a limit above PID_MAX_LIMIT, the kernel returns EINVAL.
var limits = map[string]string{"pids.max": pids}

// ReadLimit reads a limit. For the root, which lacks the file, it returns
// ErrUnsupported.
func (t *Tree) ReadLimit(path, file string) (Maximum, error) {
	c, known := limits[file]
	if !known {
		return Maximum{}, fmt.Errorf("read %s of %s: it holds no limit", file, path)
	}
	n, err := read(t, c, path, file, parseCount)
	return Maximum{Max: n}, err
}

// WriteLimit writes a limit.
func (t *Tree) WriteLimit(path, file string, v Maximum) error {
	c, known := limits[file]
	if !known {
		return fmt.Errorf("write %s of %s: it holds no limit", file, path)
	}
	return t.write(c, path, file, count(v.Max))
}

// PIDsCurrent reads pids.current.
func (t *Tree) PIDsCurrent(path string) (int64, error) {
	return read(t, pids, path, "pids.current", parseCounter)
}
