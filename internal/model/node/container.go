package node

import "tenon.sh/tenon/internal/model/unit"

// A Container is a container of a workload, with limits of its own. The limits
// of the workload also apply to it. On cgroup v1 the kernel refuses to give a
// child cgroup a larger CPU quota than its parent has.
type Container struct {
	Name          string               `json:"name"`
	Cgroup        CgroupPath           `json:"cgroup"`
	CPULimit      Maybe[unit.MilliCPU] `json:"cpu_limit,omitzero"`
	MemoryLimit   Maybe[unit.Bytes]    `json:"memory_limit,omitzero"`
	CPURequest    Maybe[unit.MilliCPU] `json:"cpu_request,omitzero"`
	MemoryRequest Maybe[unit.Bytes]    `json:"memory_request,omitzero"`
	Weight        Maybe[unit.Weight]   `json:"weight,omitzero"`
}
