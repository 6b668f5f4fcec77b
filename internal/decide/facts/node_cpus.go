package facts

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// NodeCPUs says which CPUs of a node are shared by LS and BE, and which are
// closed to BE. All policies use it, even if CPU suppress is disabled.
type NodeCPUs struct {
	// CPUs are the shared CPUs. If the set is empty, all online CPUs are
	// shared. Capacity is the number of shared CPUs that are not reserved.
	CPUs unit.CPUSet `json:"cpus,omitzero"`
	// LendLSR lets BE use the CPUs to which LSR work is bound
	// (cpuSuppressLendLSR; Koordinator always lends them). BE gets them only
	// after all other CPUs. BE never runs on the CPUs of LSE.
	LendLSR bool `json:"lend_lsr,omitempty"`
	// Reserved is an amount of CPU for the node's own processes. Tenon counts
	// this amount even if they use less.
	Reserved unit.MilliCPU `json:"reserved_mcpu,omitempty"`
	// ReservedCPUs are for the node's own processes. BE never runs on them, no
	// workload gets them as exclusive CPUs, and they do not count as capacity.
	ReservedCPUs unit.CPUSet `json:"reserved_cpus,omitzero"`
	// CPUSetsManagedExternally says that another component writes the CPU sets,
	// such as a kubelet with the static CPU manager policy. Then only a quota
	// bounds BE, and BE may run on every CPU.
	CPUSetsManagedExternally bool `json:"cpusets_managed_externally,omitempty"`
}

// Keeping returns NodeCPUs whose Reserved is at least the amount of CPU that the
// kubelet does not offer to pods. ReservedCPUs are a part of that amount. If
// CPU suppress is disabled, Keeping changes nothing.
func (n NodeCPUs) Keeping(kubelet unit.MilliCPU, suppress bool) NodeCPUs {
	if suppress {
		n.Reserved = max(n.Reserved, kubelet-unit.CPUs(n.ReservedCPUs.Len()))
	}
	return n
}

// Online returns the shared CPUs that are online, including reserved ones.
func (n NodeCPUs) Online(s node.Snapshot) unit.CPUSet {
	if n.CPUs.Empty() {
		return s.Topology.All()
	}
	return s.Topology.All().Intersect(n.CPUs)
}

// Counted returns the CPUs that make up the capacity. These are the CPUs of
// Online that are not reserved.
func (n NodeCPUs) Counted(s node.Snapshot) unit.CPUSet { return n.Online(s).Minus(n.ReservedCPUs) }

// WithIsolated returns NodeCPUs that also reserve the isolated CPUs of the node.
// The owner of the machine isolated them for other work, but a write to the
// cpuset of a cgroup would let its threads run there. If no other CPU would be
// left, WithIsolated returns n.
func (n NodeCPUs) WithIsolated(s node.Snapshot) NodeCPUs {
	with := n
	with.ReservedCPUs = n.ReservedCPUs.Union(s.Topology.Isolated)
	if with.Counted(s).Empty() {
		return n
	}
	return with
}

// RoomOf returns the CPUs in the set cpus that a contention root may use. They
// are in the present CPU sets of all its ancestors, and in the set that the
// root itself had before Tenon.
func RoomOf(k node.Knobs, m node.CgroupPath, cpus unit.CPUSet) unit.CPUSet {
	narrow := func(v node.Value) {
		if own, _ := v.(node.CPUs); !own.Set.Empty() {
			cpus = cpus.Intersect(own.Set)
		}
	}
	narrow(Original(k, node.Knob{Cgroup: m, File: node.FileCPUs}))
	for p := m.Parent(); p != ""; p = p.Parent() {
		narrow(k.Now[node.Knob{Cgroup: p, File: node.FileCPUs}])
	}
	return cpus
}
