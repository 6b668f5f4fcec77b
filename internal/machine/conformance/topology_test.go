package conformance_test

import (
	"testing"

	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTopologiesNumberSiblingsAsPromised(t *testing.T) {
	for name, c := range map[string]struct {
		topology node.Topology
		siblings unit.CPUSet // the siblings of CPU 0
		last     node.LogicalCPU
	}{
		"neighbours": {conformance.Topology(2, 2, 2), unit.CPUSetOf(0, 1), node.LogicalCPU{ID: 7, Core: 3, L3: 1, NUMA: 1, Socket: 1}},
		"split":      {conformance.Split(2, 2, 2), unit.CPUSetOf(0, 4), node.LogicalCPU{ID: 7, Core: 3, L3: 1, NUMA: 1, Socket: 1}},
		"flat":       {conformance.Flat(8), unit.CPUSetOf(0), node.LogicalCPU{ID: 7, Core: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			if n := c.topology.All().Len(); n != 8 {
				t.Errorf("%d CPUs, want 8", n)
			}
			if got := c.topology.Siblings(0); got != c.siblings {
				t.Errorf("CPU 0 has the siblings %v, want %v", got, c.siblings)
			}
			if got := c.topology.CPUs[7]; got != c.last {
				t.Errorf("the last CPU is %+v, want %+v", got, c.last)
			}
		})
	}
}

func TestFactsHaveNamesOfTheirOwn(t *testing.T) {
	for _, version := range []int{1, 2} {
		seen := map[string]bool{}
		for _, f := range conformance.Facts(version) {
			if seen[f.Name] {
				t.Errorf("v%d: two facts are named %q", version, f.Name)
			}
			seen[f.Name] = true
		}
	}
}
