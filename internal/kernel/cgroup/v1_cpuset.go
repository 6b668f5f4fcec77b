package cgroup

import "errors"

// v1FillCPUSet gives a new group the CPUs and memory nodes of its parent. On v1
// a new cpuset has neither, and no task may enter before both are set
// (Documentation/admin-guide/cgroup-v1/cpusets.rst, section 2.1). v1FillCPUSet
// does nothing on v2 and in hierarchies without the controller cpuset.
func (h *hierarchy) v1FillCPUSet(parent, group string) error {
	if h.version != 1 {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		list, err := h.read(parent, file)
		if errors.Is(err, ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := h.write(group, file, list); err != nil {
			return err
		}
	}
	return nil
}
