package place

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A Node says which workloads have which CPUs of one node. The ledger of a
// scheduler has one for each node of its cluster, and the node's agent has one of
// its own. A Node does not change: its methods return the next one. The zero Node
// has no topology.
type Node struct {
	m     *pick.Map
	off   unit.CPUSet // no workload gets these CPUs
	keep  int         // number of CPUs that stay open
	holds []held      // by UID
	seats pick.Seats
}

// A held is what one workload has. Several nodes can share it.
type held struct {
	uid  UID
	hold *cpus.Allocation
}

// NewNode returns a node on which the workloads have what all says. No workload
// gets the CPUs in off, and at least keep CPUs stay open.
func NewNode[ID ~string](m *pick.Map, off unit.CPUSet, keep int, all map[ID]cpus.Allocation) Node {
	holds := make([]held, 0, len(all))
	for id, a := range all {
		holds = append(holds, held{UID(id), &a})
	}
	return nodeOf(m, off, keep, holds)
}

// nodeOf sorts holds.
func nodeOf(m *pick.Map, off unit.CPUSet, keep int, holds []held) Node {
	slices.SortFunc(holds, func(a, b held) int { return strings.Compare(string(a.uid), string(b.uid)) })
	n := Node{m: m, off: off, keep: keep, holds: holds}
	n.fill()
	return n
}

func (n *Node) fill() {
	all := make([]cpus.Allocation, len(n.holds))
	for i, h := range n.holds {
		all[i] = *h.hold
	}
	n.seats = n.m.Seats(n.off, n.keep, all)
}

// Has reports whether a workload has something on the node.
func (n *Node) Has(uid UID) bool {
	_, has := n.find(uid)
	return has
}

func (n *Node) find(uid UID) (int, bool) {
	return slices.BinarySearchFunc(n.holds, uid, func(a held, uid UID) int { return strings.Compare(string(a.uid), string(uid)) })
}

// With returns the node with one more workload. This is cheaper than making a
// node from all workloads.
func (n Node) With(uid UID, a cpus.Allocation) Node { return n.with(held{uid, &a}) }

func (n Node) with(h held) Node {
	i, _ := n.find(h.uid)
	holds := make([]held, 0, len(n.holds)+1)
	n.holds = append(append(append(holds, n.holds[:i]...), h), n.holds[i:]...)
	n.seats = n.m.With(n.seats, *h.hold)
	return n
}

// Without returns the node without some workloads.
func (n Node) Without(uids ...UID) Node {
	if n.m == nil {
		return n
	}
	all := n.holds
	n.holds = make([]held, 0, len(all))
	var freed unit.CPUSet
	simple := true // the workloads own CPUs, and nothing else depends on them
	for _, h := range all {
		if !slices.Contains(uids, h.uid) {
			n.holds = append(n.holds, h)
			continue
		}
		simple = simple && h.hold.Policy == cpus.Exclusive && h.hold.Exclusive == cpus.NotExclusive
		freed = freed.Union(h.hold.CPUs)
	}
	if !simple {
		n.fill()
		return n
	}
	freed = freed.Minus(n.off)
	for _, h := range n.holds {
		if h.hold.Policy == cpus.Exclusive {
			freed = freed.Minus(h.hold.CPUs)
		}
	}
	n.seats = n.m.Reopen(n.seats, freed)
	return n
}

// Close returns the node as it is for a workload that may not use some CPUs.
func (n Node) Close(set unit.CPUSet) Node {
	if !set.Intersect(n.Open()).Empty() {
		n.off = n.off.Union(set)
		n.seats = n.m.With(n.seats, cpus.Allocation{Policy: cpus.Exclusive, CPUs: set})
	}
	return n
}

// Resize chooses the CPUs for a request of a workload that has some CPUs, or none
// (see pick.Map.Resize). The node must be without the workload.
func (n *Node) Resize(r cpus.Request, have unit.CPUSet) (pick.Offer, cpus.Code) {
	return n.m.Resize(n.seats, r, have)
}

// Reseat returns the CPUs that work with the policy Shared or Pool has now in its
// domain (see pick.Map.Reseat). count is the number of shared CPUs that it asks
// for. The node must be without the workload.
func (n *Node) Reseat(a cpus.Allocation, count int) (set unit.CPUSet, moved bool) {
	return n.m.Reseat(n.seats, a, count)
}

// Holds returns what the workloads have.
func (n *Node) Holds() map[UID]cpus.Allocation {
	all := make(map[UID]cpus.Allocation, len(n.holds))
	for _, h := range n.holds {
		all[h.uid] = *h.hold
	}
	return all
}

// Map returns the topology, or nil if it is not known.
func (n *Node) Map() *pick.Map { return n.m }

// Open returns the CPUs that no workload owns.
func (n *Node) Open() unit.CPUSet {
	if n.m == nil {
		return unit.CPUSet{}
	}
	return n.m.Open(n.seats)
}

// Reserved returns the CPUs that no workload gets.
func (n *Node) Reserved() unit.CPUSet { return n.off }
