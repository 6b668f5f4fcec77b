package cgroup

import "math"

// PIDs is the maximum number of tasks (processes and threads) in a group and
// all groups below it.
type PIDs struct{ Max int64 }

// MaxPIDs means no limit.
const MaxPIDs int64 = math.MaxInt64

// ReadPIDs reads pids.max. For the root, which lacks the file, it returns
// ErrUnsupported.
func (t *Tree) ReadPIDs(path string) (PIDs, error) {
	n, err := read(t, pids, path, "pids.max", parseCount)
	return PIDs{Max: n}, err
}

// WritePIDs writes pids.max. The limit may be smaller than the present number
// of tasks: it only prevents new tasks. For a limit above PID_MAX_LIMIT, the
// kernel returns EINVAL.
func (t *Tree) WritePIDs(path string, v PIDs) error {
	return t.write(pids, path, "pids.max", count(v.Max))
}

// PIDsCurrent reads pids.current.
func (t *Tree) PIDsCurrent(path string) (int64, error) {
	return read(t, pids, path, "pids.current", parseCounter)
}
