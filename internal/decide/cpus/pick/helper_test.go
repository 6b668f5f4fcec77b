package pick

import (
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// machine returns a topology with the given numbers of NUMA nodes, L3 caches in
// each node, cores in each cache, and threads in each core. The threads of a
// core have consecutive numbers.
func machine(nodes, caches, cores, threads int) node.Topology {
	var t node.Topology
	for c := range nodes * caches * cores * threads {
		core := c / threads
		l3 := core / cores
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(core), L3: node.CacheID(l3),
			NUMA: node.NUMANode(l3 / caches), Socket: node.SocketID(l3 / caches),
		})
	}
	return t
}

func set(t *testing.T, list string) unit.CPUSet {
	t.Helper()
	s, err := unit.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func some(rnd *rand.Rand, of unit.CPUSet) unit.CPUSet {
	var s unit.CPUSet
	share := rnd.IntN(5)
	for c := range of.All() {
		if rnd.IntN(4) < share {
			s = s.With(c)
		}
	}
	return s
}
