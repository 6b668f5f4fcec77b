package node

import "tenon.sh/tenon/internal/unit"

// A Part is a cgroup inside that of a workload which has limits of its own: a
// container of a pod. The workload's own are those of the whole. The kernel
// applies both, and on cgroup v1 refuses a part more CPU than the whole has.
type Part struct {
	Name   string     `json:"name"`
	Cgroup CgroupPath `json:"cgroup"`
	// These are as in Workload.
	CPULimit      Maybe[unit.MilliCPU] `json:"cpu_limit,omitzero"`
	MemoryLimit   Maybe[unit.Bytes]    `json:"memory_limit,omitzero"`
	CPURequest    Maybe[unit.MilliCPU] `json:"cpu_request,omitzero"`
	MemoryRequest Maybe[unit.Bytes]    `json:"memory_request,omitzero"`
	Weight        Maybe[unit.Weight]   `json:"weight,omitzero"`
}
