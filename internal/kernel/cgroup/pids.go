package cgroup

import "math"

// PIDs is the limit on the number of tasks, threads included, of a group and
// all below it.
type PIDs struct{ Max int64 }

// MaxPIDs means no limit.
const MaxPIDs int64 = math.MaxInt64

// ReadPIDs reads pids.max. The root does not have it: ErrUnsupported.
func (t *Tree) ReadPIDs(path string) (PIDs, error) {
	n, err := read(t, pids, path, "pids.max", parseCount)
	return PIDs{Max: n}, err
}

// WritePIDs writes pids.max. A limit below what is there is accepted and only
// stops new tasks; more than the kernel's PID_MAX_LIMIT gives EINVAL.
func (t *Tree) WritePIDs(path string, v PIDs) error {
	return t.write(pids, path, "pids.max", count(v.Max))
}

// PIDsCurrent reads pids.current.
func (t *Tree) PIDsCurrent(path string) (int64, error) {
	return read(t, pids, path, "pids.current", parseCount)
}
