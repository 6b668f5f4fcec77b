package cpus

import "tenon.sh/tenon/internal/model/unit"

// An Allocation says which CPUs a workload has on a machine. An Allocation without
// a Policy takes no CPUs. It only marks cores or NUMA nodes, and work with the
// same ExclusivePolicy avoids them.
type Allocation struct {
	Policy Policy `json:"policy,omitempty"`
	// CPUs are the exclusive CPUs, the present shared CPUs, or the open CPUs of
	// the pool.
	CPUs unit.CPUSet `json:"cpus,omitzero"`
	// Domain is the set of all CPUs of the place in which work of the policies
	// Shared and Pool shares CPUs. It includes CPUs that other work has
	// exclusively. For exclusive CPUs it is empty.
	Domain unit.CPUSet `json:"domain,omitzero"`
	// CPU is the amount of CPU that work of the policies Shared and Pool requests.
	CPU unit.MilliCPU `json:"cpu_mcpu,omitempty"`
	// Exclusive is that of the request.
	Exclusive ExclusivePolicy `json:"exclusive,omitempty"`
}
