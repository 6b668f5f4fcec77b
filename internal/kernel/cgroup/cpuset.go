package cgroup

import (
	"fmt"

	"tenon.sh/tenon/internal/model/unit"
)

// ReadCPUs reads cpuset.cpus: the CPUs that the group asks for. Empty means
// the parent's on v2, and on v1 that no task may enter. The root of v2 does
// not have it.
func (t *Tree) ReadCPUs(path string) (unit.CPUSet, error) {
	return read(t, cpuset, path, "cpuset.cpus", unit.ParseCPUSet)
}

// WriteCPUs writes cpuset.cpus. On v1 a group must stay within its parent
// (EACCES), must hold its children (EBUSY), and may not lose its last CPU
// while it has tasks (ENOSPC). Of this v2 refuses the last alone, for tasks
// below the group, too: a set that was empty, all of the parent's, cannot be
// emptied again as long as there are any. A CPU that the kernel cannot have
// gives ERANGE.
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
// memory. Empty is as in ReadCPUs.
func (t *Tree) ReadMems(path string) (unit.CPUSet, error) {
	return read(t, cpuset, path, "cpuset.mems", unit.ParseCPUSet)
}

// WriteMems writes cpuset.mems, with the refusals of WriteCPUs.
func (t *Tree) WriteMems(path string, nodes unit.CPUSet) error {
	return t.write(cpuset, path, "cpuset.mems", nodes.String())
}

// Partition reads cpuset.cpus.partition (Linux 5.9, isolated 6.1): "member",
// "root" or "isolated", where an invalid one says why: "root invalid (…)".
// v1 has no partitions: ErrUnsupported.
func (t *Tree) Partition(path string) (string, error) {
	const file = "cpuset.cpus.partition"
	if t.VersionOf(cpuset) == 1 {
		return "", fmt.Errorf("read %s in %s: cgroup v1 has no partitions: %w", file, shown(path), ErrUnsupported)
	}
	return read(t, cpuset, path, file, func(text string) (string, error) { return text, nil })
}
