// Package place is the ledger of the CPUs of a cluster, which says which pods
// hold which CPUs of which node. It learns this from the reports of the nodes,
// from the contracts of bound pods, and from reservations. The scheduler, the
// simulator and kubectl tenon fit use the same ledger.
package place

import (
	"maps"
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// UID identifies a pod on its node: metadata.uid, but for a static pod the hash
// of its file, because its mirror in the API server has another UID.
type UID string

// A Reason says why a node does not take a pod. It is empty if the node takes
// the pod.
type Reason = pick.Reason

// The reasons that the ledger adds to those of package pick.
const (
	NoReport     Reason = "no agent has reported the CPUs of the node"
	Stale        Reason = "the report of the node's agent is too old"
	OtherManager Reason = "another manager binds CPUs on the node"
	NotHere      Reason = "the pod is reserved on another node"
)

// A Demand says what a pod demands of a node's CPUs.
type Demand struct {
	pick.Claim
	// Containers are the containers with CPUs of their own, in the order of the
	// pod. Their CPUs add up to the CPUs of the claim. If there are none, the
	// CPUs are for the pod as a whole.
	Containers []Container
	// Memory is the memory that the pod requests.
	Memory unit.Bytes
}

// A Container is the demand of one container.
type Container struct {
	Name string
	CPUs int
}

// A Pod is a pod that demands CPUs.
type Pod struct {
	UID    UID
	Demand Demand
}

// A Contract says what a scheduler chose for a pod on its node.
type Contract struct {
	// Topology is the topology for which the choice was made.
	Topology pick.Hash
	Grade    pick.Grade
	// CPUs are own CPUs or seats. For pooled work they are the CPUs of the pool
	// that were open when the pod was bound. Home are all CPUs of the pool. For
	// own CPUs, Home is empty.
	CPUs, Home unit.CPUSet
	// Containers divides CPUs among the containers. If it is nil, the CPUs are
	// for the pod as a whole.
	Containers map[string]unit.CPUSet
	// Nodes says how much of the pod is on each NUMA node.
	Nodes []NodeShare
}

// A NodeShare is the part of a contract on one NUMA node.
type NodeShare struct {
	NUMA   node.NUMANode
	CPU    unit.MilliCPU
	Memory unit.Bytes
}

// A Held says what a pod holds on its node, according to the node's agent.
type Held struct {
	UID  UID
	Hold pick.Hold
}

// A Report is the state of the CPUs of one node, according to its agent.
type Report struct {
	Topology node.Topology
	// Reserved are the CPUs that no pod of the ledger gets. Keep is the number
	// of CPUs that must stay open.
	Reserved unit.CPUSet
	Keep     int
	// Manager names another program that writes cpusets on the node, such as
	// the static policy of the kubelet. It is empty if there is none.
	Manager string
	Held    []Held
	// Refused are the pods that are bound to the node and demand CPUs, but to
	// which the node gave none.
	Refused []UID
}

// ContractOf makes a contract from an offer.
func ContractOf(m *pick.Map, d Demand, o pick.Offer) Contract {
	c := Contract{Topology: m.Hash(), Grade: d.Grade, CPUs: o.CPUs, Home: o.Home}
	if d.Grade != pick.Pooled && len(d.Containers) > 0 {
		sizes := make([]int, len(d.Containers))
		for i, k := range d.Containers {
			sizes[i] = k.CPUs
		}
		c.Containers = make(map[string]unit.CPUSet, len(sizes))
		for i, set := range m.Cut(o.CPUs, sizes) {
			c.Containers[d.Containers[i].Name] = set
		}
	}
	c.Nodes = shares(m, d, o)
	return c
}

// shares divides the demand among the NUMA nodes, in proportion to the CPUs
// that each node has.
func shares(m *pick.Map, d Demand, o pick.Offer) []NodeShare {
	request := d.Request
	if d.Grade == pick.Own {
		request = unit.CPUs(d.CPUs)
	}
	n := unit.MilliCPU(o.CPUs.Len())
	var all []NodeShare
	for numa, set := range m.Nodes(o.CPUs) {
		k := set.Len()
		all = append(all, NodeShare{NUMA: numa, CPU: request * unit.MilliCPU(k) / n, Memory: d.Memory / unit.Bytes(n) * unit.Bytes(k)})
	}
	return all
}

// Hold returns what a pod holds if the node follows its contract.
func (c Contract) Hold(d Demand) pick.Hold {
	return pick.Hold{Grade: c.Grade, CPUs: c.CPUs, Home: c.Home, Request: d.Request, Apart: d.Apart}
}

// Matches reports whether a contract has the grade and the number of CPUs of a
// demand. A forged contract can therefore not give a pod more than it demands.
func (c Contract) Matches(d Demand) bool {
	if c.Grade != d.Grade {
		return false
	}
	if c.Grade == pick.Pooled {
		return !c.Home.Empty()
	}
	return c.CPUs.Len() == d.CPUs && (c.Grade == pick.Own || c.Home.Contains(c.CPUs))
}

func (d *Demand) same(o *Demand) bool {
	return d.Claim == o.Claim && d.Memory == o.Memory && slices.Equal(d.Containers, o.Containers)
}

func (c *Contract) same(o *Contract) bool {
	return c.Topology == o.Topology && c.Grade == o.Grade && c.CPUs == o.CPUs && c.Home == o.Home && maps.Equal(c.Containers, o.Containers)
}
