package pick

import (
	"testing"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// twoSockets is 2 sockets × 2 cores × 2 threads; CPU n is thread n%2 of core n/2.
func twoSockets() node.Topology {
	var t node.Topology
	for c := range 8 {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c / 2), L3: node.CacheID(c / 4), NUMA: node.NUMANode(c / 4), Socket: node.SocketID(c / 4)})
	}
	return t
}

func TestBestEffortTakesWholeCoresAndSpreadsOverCaches(t *testing.T) {
	topo := twoSockets()
	for name, c := range map[string]struct {
		allowed, avoid string
		n              int
		want           string
	}{
		"one whole core":               {"0-7", "", 2, "0-1"},
		"then the other cache":         {"0-7", "", 4, "0-1,4-5"},
		"an odd CPU":                   {"0-7", "", 3, "0-1,4"},
		"cores of bound work last":     {"0-7", "0,4", 4, "2-3,6-7"},
		"half-allowed cores after":     {"1-7", "", 2, "2-3"},
		"a demand too large gets all":  {"1-2", "", 9, "1-2"},
		"no demand gets none":          {"0-7", "", 0, ""},
		"nothing allowed gets nothing": {"", "", 4, ""},
		"only avoided ones are left":   {"0-7", "0-7", 8, "0-7"},
	} {
		allowed, _ := unit.ParseCPUSet(c.allowed)
		avoid, _ := unit.ParseCPUSet(c.avoid)
		if got := BestEffort(topo, allowed, avoid, c.n).String(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// Growing must never move best-effort work: what it has stays its own.
func TestBestEffortGrowsBySupersets(t *testing.T) {
	topo := twoSockets()
	for avoid := range 256 {
		var a unit.CPUSet
		for c := range 8 {
			if avoid>>c&1 == 1 {
				a = a.With(unit.CPU(c))
			}
		}
		last := unit.CPUSet{}
		for n := 1; n <= 8; n++ {
			next := BestEffort(topo, topo.All(), a, n)
			if next.Len() != n || !next.Contains(last) {
				t.Fatalf("avoid %v: %d CPUs are %v, %d were %v", a, n, next, n-1, last)
			}
			last = next
		}
	}
}
