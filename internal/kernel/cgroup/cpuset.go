package cgroup

import (
	"fmt"

	"tenon.sh/tenon/internal/model/unit"
)

// ReadCPUs reads cpuset.cpus. If the set is empty, a v2 group has the CPUs of its
// parent, and a v1 group accepts no tasks. The root of v2 does not have the file.
func (t *Tree) ReadCPUs(path string) (unit.CPUSet, error) {
	return readOften(t, cpuset, path, "cpuset.cpus", unit.ParseCPUSet)
}

// WriteCPUs writes cpuset.cpus. On v1 the set must be a subset of the parent's
// (EACCES) and include the sets of the children (EBUSY). While the group has
// tasks, the set must not become empty (ENOSPC). On v2 only this last rule
// applies, also while groups below have tasks. So the empty set of a new group
// cannot be restored while tasks are in or below it. The kernel returns ERANGE
// for a CPU number that it does not support.
func (t *Tree) WriteCPUs(path string, cpus unit.CPUSet) error {
	return t.write(cpuset, path, "cpuset.cpus", cpus.String())
}

// EffectiveCPUs reads the CPUs that tasks of the group may use
// (cpuset.cpus.effective; v1: cpuset.effective_cpus).
func (t *Tree) EffectiveCPUs(path string) (unit.CPUSet, error) {
	file := "cpuset.cpus.effective"
	if t.VersionOf(cpuset) == 1 {
		file = "cpuset.effective_cpus"
	}
	return read(t, cpuset, path, file, unit.ParseCPUSet)
}

// EffectiveMems reads the memory nodes that tasks of the group may use
// (cpuset.mems.effective; v1: cpuset.effective_mems).
func (t *Tree) EffectiveMems(path string) (unit.CPUSet, error) {
	file := "cpuset.mems.effective"
	if t.VersionOf(cpuset) == 1 {
		file = "cpuset.effective_mems"
	}
	return read(t, cpuset, path, file, unit.ParseCPUSet)
}

// ReadMems reads cpuset.mems, the NUMA nodes from which the group may get
// memory. An empty set has the same meaning as in ReadCPUs.
func (t *Tree) ReadMems(path string) (unit.CPUSet, error) {
	return read(t, cpuset, path, "cpuset.mems", unit.ParseCPUSet)
}

// WriteMems writes cpuset.mems. It returns the same errors as WriteCPUs.
func (t *Tree) WriteMems(path string, nodes unit.CPUSet) error {
	return t.write(cpuset, path, "cpuset.mems", nodes.String())
}

// Partition reads cpuset.cpus.partition (Linux 5.9, isolated 6.1): "member",
// "root" or "isolated". For an invalid partition, the text contains the reason:
// "root invalid (…)". On v1, which has no partitions, it returns ErrUnsupported.
func (t *Tree) Partition(path string) (string, error) {
	const file = "cpuset.cpus.partition"
	if t.VersionOf(cpuset) == 1 {
		return "", fmt.Errorf("read %s in %s: cgroup v1 has no partitions: %w", file, printPath(path), ErrUnsupported)
	}
	return read(t, cpuset, path, file, func(text string) (string, error) { return text, nil })
}
