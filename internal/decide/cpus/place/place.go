// Package place is the ledger of the CPUs of a cluster, which says which pods
// hold which CPUs of which node. It learns this from the reports of the nodes,
// from the contracts of bound pods, and from reservations. The scheduler, the
// simulator and kubectl tenon fit use the same ledger.
package place

import (
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// UID identifies a pod on its node: metadata.uid, but for a static pod the hash
// of its file, because its mirror in the API server has another UID.
type UID string

// A Pod is a pod that demands CPUs.
type Pod struct {
	UID     UID
	Request cpus.PodRequest
}

// A Contract is the choice of a scheduler for a pod.
type Contract struct {
	cpus.Choice
	// Nodes says how much of the pod is on each NUMA node.
	Nodes []NodeShare
}

// A NodeShare is the part of a contract on one NUMA node.
type NodeShare struct {
	NUMA   node.NUMANode
	CPU    unit.MilliCPU
	Memory unit.Bytes
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
	// Pods has the pods that are bound to the node and demand CPUs. The allocation
	// of a pod to which the node gave none has no CPUs.
	Pods map[UID]cpus.Allocation
}

// Check returns the reason why a scheduler's choice is not for a request on a
// machine, or nil. It does not look at what workloads have.
func Check(m *pick.Map, c *cpus.Choice, r cpus.Request) *cpus.Reason {
	where := c.CPUs
	if r.Policy > cpus.Exclusive {
		where = c.Domain
	}
	switch gone := where.Minus(m.All()); {
	case c.Topology != 0 && c.Topology != m.Hash():
		return &cpus.Reason{Code: cpus.ChoiceForTopology}
	case c.Policy != r.Policy:
		return &cpus.Reason{Code: cpus.ChoiceForPolicy, Policy: c.Policy}
	case r.Policy != cpus.Pool && c.CPUs.Len() != r.CPUs:
		return &cpus.Reason{Code: cpus.ChoiceForNumber, CPUs: c.CPUs, Request: r}
	case where.Empty():
		return &cpus.Reason{Code: cpus.ChoiceWithoutDomain}
	case !gone.Empty():
		return &cpus.Reason{Code: cpus.ChoiceOffline, CPUs: gone}
	}
	return nil
}

// ContractOf makes a contract from an offer.
func ContractOf(m *pick.Map, r cpus.PodRequest, o pick.Offer) Contract {
	c := Contract{Choice: cpus.Choice{Topology: m.Hash(), Policy: r.Policy, CPUs: o.CPUs, Domain: o.Domain}}
	if r.Policy != cpus.Pool && len(r.Containers) > 0 {
		c.Containers = Divide(m, o.CPUs, r.Containers)
	}
	c.Nodes = shares(m, r, o)
	return c
}

// Divide divides the CPUs of a pod among its containers.
func Divide(m *pick.Map, set unit.CPUSet, containers []cpus.ContainerRequest) map[string]unit.CPUSet {
	sizes := make([]int, len(containers))
	for i, c := range containers {
		sizes[i] = c.CPUs
	}
	parts := make(map[string]unit.CPUSet, len(sizes))
	for i, part := range m.Cut(set, sizes) {
		parts[containers[i].Name] = part
	}
	return parts
}

// shares divides the request among the NUMA nodes, in proportion to the CPUs
// that each node has.
func shares(m *pick.Map, r cpus.PodRequest, o pick.Offer) []NodeShare {
	request := r.CPU
	if r.Policy == cpus.Exclusive {
		request = unit.CPUs(r.CPUs)
	}
	n := unit.MilliCPU(o.CPUs.Len())
	var all []NodeShare
	for numa, set := range m.Nodes(o.CPUs) {
		k := set.Len()
		all = append(all, NodeShare{NUMA: numa, CPU: request * unit.MilliCPU(k) / n, Memory: r.Memory / unit.Bytes(n) * unit.Bytes(k)})
	}
	return all
}
