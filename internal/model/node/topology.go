package node

import (
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// CoreID, CacheID, NUMANode, SocketID and CoreKind are numbers of the parts of a machine. A
// CoreID is unique on the node, unlike the kernel's core_id, which is unique in its socket.
type (
	CoreID   int
	CacheID  int
	NUMANode int
	SocketID int
	CoreKind int
)

// A LogicalCPU is one logical CPU, with the core, cache, NUMA node and socket
// to which it belongs.
type LogicalCPU struct {
	ID     unit.CPU `json:"id"`
	Core   CoreID   `json:"core"`
	L3     CacheID  `json:"l3"`
	NUMA   NUMANode `json:"numa"`
	Socket SocketID `json:"socket"`
	// Kind is the kind of core: 0 is the fastest, and slower kinds have higher numbers.
	Kind CoreKind `json:"kind,omitempty"`
}

// A NUMAMemory is the memory of a NUMA node.
type NUMAMemory struct {
	NUMA NUMANode   `json:"numa"`
	Size unit.Bytes `json:"bytes"` // MemTotal of the node
}

// Topology lists the online CPUs of a node, in ascending order, and its memory.
type Topology struct {
	CPUs []LogicalCPU `json:"cpus"`
	// Memory lists the NUMA nodes with memory, in ascending order. If it is
	// empty, the kernel shows no NUMA nodes, and the machine has one memory.
	Memory []NUMAMemory `json:"memory,omitempty"`
	// Isolated are the CPUs that the kernel's command line names in isolcpus= and nohz_full=.
	Isolated unit.CPUSet `json:"isolated,omitzero"`
}

// All returns the set of all online CPUs.
func (t Topology) All() unit.CPUSet {
	var s unit.CPUSet
	for i := range t.CPUs {
		s.Add(t.CPUs[i].ID)
	}
	return s
}

// Siblings returns the CPUs of the core of c, including c. It is empty if c is
// not online.
func (t Topology) Siblings(c unit.CPU) unit.CPUSet {
	var s unit.CPUSet
	i := slices.IndexFunc(t.CPUs, func(a LogicalCPU) bool { return a.ID == c })
	for _, b := range t.CPUs {
		if i >= 0 && b.Core == t.CPUs[i].Core {
			s = s.With(b.ID)
		}
	}
	return s
}

// SMT reports whether any core has more than one online CPU.
func (t Topology) SMT() bool {
	cores := make(map[CoreID]bool, len(t.CPUs))
	for _, c := range t.CPUs {
		cores[c.Core] = true
	}
	return len(cores) < len(t.CPUs)
}
