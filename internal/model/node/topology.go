package node

import "tenon.sh/tenon/internal/model/unit"

// CoreID, CacheID, NUMANode and SocketID number the parts of a machine. A
// CoreID is unique on the node (the kernel's core_id is so only in a socket).
type (
	CoreID   int
	CacheID  int
	NUMANode int
	SocketID int
)

// A LogicalCPU is one CPU and what it shares with others.
type LogicalCPU struct {
	ID     unit.CPU `json:"id"`
	Core   CoreID   `json:"core"`
	L3     CacheID  `json:"l3"`
	NUMA   NUMANode `json:"numa"`
	Socket SocketID `json:"socket"`
}

// Topology is the online CPUs of a node, ascending by number.
type Topology struct {
	CPUs []LogicalCPU `json:"cpus"`
}

// All returns the set of all online CPUs.
func (t Topology) All() unit.CPUSet {
	var s unit.CPUSet
	for _, c := range t.CPUs {
		s = s.With(c.ID)
	}
	return s
}

// Siblings returns the CPUs that share a core with c, c itself included. It
// is empty if c is not online.
func (t Topology) Siblings(c unit.CPU) unit.CPUSet {
	var s unit.CPUSet
	for _, a := range t.CPUs {
		if a.ID != c {
			continue
		}
		for _, b := range t.CPUs {
			if b.Core == a.Core {
				s = s.With(b.ID)
			}
		}
	}
	return s
}

// SMT reports whether any core has more than one online CPU.
func (t Topology) SMT() bool {
	seen := map[CoreID]bool{}
	for _, c := range t.CPUs {
		if seen[c.Core] {
			return true
		}
		seen[c.Core] = true
	}
	return false
}
