package facts

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Pool says which CPUs of a node LS and BE share, and which are kept from BE. It
// holds for every policy, whichever are switched on.
type Pool struct {
	// CPUs are counted and shared: the capacity is their number. Empty: all
	// online CPUs.
	CPUs unit.CPUSet `json:"cpus,omitzero"`
	// LendLSR lets BE run on the CPUs to which LSR work is bound, after all
	// others (cpuSuppressLendLSR; Koordinator always lends them). On the CPUs of
	// LSE it never runs.
	LendLSR bool `json:"lend_lsr,omitempty"`
	// Reserved is kept for the node's own processes: their use counts as at least
	// so much.
	Reserved unit.MilliCPU `json:"reserved_mcpu,omitempty"`
	// ReservedCPUs are for the node's own processes: BE never runs there, no
	// workload has them as exclusive CPUs, and they are not part of the capacity.
	ReservedCPUs unit.CPUSet `json:"reserved_cpus,omitzero"`
	// CPUSetsManagedExternally means that another manager, such as a kubelet
	// with the static CPU manager policy, writes the CPU sets: BE is bounded by
	// quota alone, and kept off no CPU.
	CPUSetsManagedExternally bool `json:"sets_kept,omitempty"`
}

// Online returns the counted CPUs that are online, reserved ones included.
func (p Pool) Online(s node.Snapshot) unit.CPUSet {
	if p.CPUs.Empty() {
		return s.Topology.All()
	}
	return s.Topology.All().Intersect(p.CPUs)
}

// Counted returns the CPUs that make the capacity: those that are online and not
// reserved.
func (p Pool) Counted(s node.Snapshot) unit.CPUSet { return p.Online(s).Minus(p.ReservedCPUs) }
