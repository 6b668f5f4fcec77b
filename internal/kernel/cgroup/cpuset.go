package cgroup

import (
	"fmt"

	"tenon.sh/tenon/internal/model/unit"
)

// ReadCPUs reads cpuset.cpus. On v2 an empty set means the CPUs of the parent. On v1
// it means that no task may enter the group. The root of v2 does not have the file.
func (t *Tree) ReadCPUs(path string) (unit.CPUSet, error) {
	return readOften(t, cpuset, path, "cpuset.cpus", unit.ParseCPUSet)
}

// WriteCPUs writes cpuset.cpus. v1 has three rules: the set must be a subset
// of the parent's (EACCES), must include the sets of the children (EBUSY),
// and must not become empty while the group has tasks (ENOSPC). v2 has only
// the third rule, which there also counts tasks below the group. So the empty
// set of a new group cannot be restored while the group has tasks. The kernel
// returns ERANGE for a CPU number that it does not support.
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
