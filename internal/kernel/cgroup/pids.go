package cgroup

import "math"

// PIDs is the maximum number of tasks (processes and threads) of a group and
// all groups below it.
type PIDs struct{ Max int64 }

// MaxPIDs means no limit.
const MaxPIDs int64 = math.MaxInt64

// ReadPIDs reads pids.max. The root lacks the file: ErrUnsupported.
func (t *Tree) ReadPIDs(path string) (PIDs, error) {
	n, err := read(t, pids, path, "pids.max", parseCount)
	return PIDs{Max: n}, err
}

// WritePIDs writes pids.max. The kernel accepts a limit below the present
// number of tasks, which then only stops new tasks. More than PID_MAX_LIMIT
// gives EINVAL.
func (t *Tree) WritePIDs(path string, v PIDs) error {
	return t.write(pids, path, "pids.max", count(v.Max))
}

// PIDsCurrent reads pids.current.
func (t *Tree) PIDsCurrent(path string) (int64, error) {
	return read(t, pids, path, "pids.current", parseCount)
}
