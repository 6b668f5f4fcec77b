package lend

import (
	"maps"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// machine returns a topology with nodes × caches × cores × threads. The threads
// of a core have consecutive numbers.
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

func TestBestEffortTakesWholeCoresAndSpreadsOverCaches(t *testing.T) {
	topo := machine(2, 1, 2, 2)
	for name, c := range map[string]struct {
		allowed, bound string
		n              int
		want           string
		beside         int
	}{
		"one whole core":               {"0-7", "", 2, "0-1", 0},
		"then the other cache":         {"0-7", "", 4, "0-1,4-5", 0},
		"an odd CPU":                   {"0-7", "", 3, "0-1,4", 0},
		"cores of bound work last":     {"0-7", "0,4", 4, "2-3,6-7", 0},
		"a sibling of bound work last": {"1-7", "0", 6, "2-7", 0},
		"half-allowed cores after":     {"1-7", "", 2, "2-3", 0},
		"a demand too large gets all":  {"1-2", "", 9, "1-2", 0},
		"no demand gets none":          {"0-7", "", 0, "", 0},
		"less than none gets none":     {"0-7", "", -1, "", 0},
		"nothing allowed gets nothing": {"", "", 4, "", 0},
		"only bound ones are left":     {"0-7", "0-7", 8, "0-7", 8},
	} {
		got := BestEffort(topo, Demand{CPUs: c.n, Allowed: set(t, c.allowed), Bound: set(t, c.bound)})
		if got.CPUs.String() != c.want || got.Beside != c.beside {
			t.Errorf("%s: got %q, %d beside LS; want %q, %d", name, got.CPUs, got.Beside, c.want, c.beside)
		}
	}
	if got := BestEffort(machine(2, 2, 2, 2), Demand{CPUs: 8, Allowed: set(t, "0-15")}).CPUs.String(); got != "0-1,4-5,8-9,12-13" {
		t.Errorf("four cores of four caches are %s", got)
	}
	if got := BestEffort(machine(2, 2, 2, 2), Demand{CPUs: 4, Allowed: set(t, "0-15")}).CPUs.String(); got != "0-1,8-9" {
		t.Errorf("two cores of two NUMA nodes are %s", got)
	}
}

func TestBestEffortGoesWhereLatencySensitiveWorkIsNot(t *testing.T) {
	topo := machine(1, 1, 4, 2)
	for name, c := range map[string]struct {
		load map[unit.CPU]unit.MilliCPU
		n    int
		want string
	}{
		"not beside a busy sibling":      {map[unit.CPU]unit.MilliCPU{0: 800}, 2, "2-3"},
		"the least busy core":            {map[unit.CPU]unit.MilliCPU{0: 800, 2: 100, 4: 900, 6: 900}, 2, "2-3"},
		"noise counts as idle":           {map[unit.CPU]unit.MilliCPU{0: 40, 1: 9}, 2, "0-1"},
		"a little counts":                {map[unit.CPU]unit.MilliCPU{0: 40, 1: 10}, 2, "2-3"},
		"idle cores first, then by load": {map[unit.CPU]unit.MilliCPU{0: 900, 2: 500, 4: 100}, 6, "2-7"},
	} {
		if got := BestEffort(topo, Demand{CPUs: c.n, Allowed: topo.All(), Load: c.load}).CPUs.String(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestBestEffortKeepsWhatIsGoodEnough(t *testing.T) {
	topo := machine(2, 1, 4, 2)
	for name, c := range map[string]struct {
		load  map[unit.CPU]unit.MilliCPU
		have  string
		n     int
		swaps int
		want  string
	}{
		"its own cores":                   {nil, "2-3,14-15", 4, 4, "2-3,14-15"},
		"a little load beside it":         {map[unit.CPU]unit.MilliCPU{2: 140}, "2-3,14-15", 4, 4, "2-3,14-15"},
		"much load makes it move":         {map[unit.CPU]unit.MilliCPU{2: 700}, "2-3,14-15", 4, 4, "0-1,14-15"},
		"by no more than may be swapped":  {map[unit.CPU]unit.MilliCPU{2: 700}, "2-3,14-15", 4, 1, "0,2,14-15"},
		"not at all":                      {map[unit.CPU]unit.MilliCPU{2: 700}, "2-3,14-15", 4, 0, "2-3,14-15"},
		"not to an equal place":           {map[unit.CPU]unit.MilliCPU{0: 700, 2: 700, 4: 700, 6: 700, 8: 700, 10: 700, 12: 700}, "2-3,14-15", 4, 4, "2-3,14-15"},
		"growth completes a core":         {nil, "2,14-15", 4, 0, "2-3,14-15"},
		"growth takes the other cache":    {nil, "0-3", 6, 0, "0-3,8-9"},
		"growth avoids load":              {map[unit.CPU]unit.MilliCPU{8: 500}, "0-3", 6, 0, "0-3,10-11"},
		"shrinking gives up half a core":  {nil, "0-3,14", 4, 0, "0-3"},
		"shrinking gives up load":         {map[unit.CPU]unit.MilliCPU{0: 500}, "0-3,14", 3, 0, "2-3,14"},
		"shrinking evens the caches":      {nil, "0-5,8-9", 4, 0, "0-1,8-9"},
		"what is not allowed is given up": {nil, "0-3,20", 4, 0, "0-3"},
	} {
		got := BestEffort(topo, Demand{CPUs: c.n, Allowed: topo.All(), Load: c.load, Have: set(t, c.have), Swaps: c.swaps})
		if got.CPUs.String() != c.want {
			t.Errorf("%s: got %s, want %s", name, got.CPUs, c.want)
		}
	}
}

// When BE grows or shrinks, the CPUs that it keeps must stay the same. Without
// swaps, it must keep only CPUs that it had, and lose CPUs only when it
// shrinks.
func TestBestEffortGrowsAndShrinksInPlace(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	topo := machine(2, 2, 3, 2)
	for range 2000 {
		d := Demand{Allowed: some(rnd, topo.All()), Bound: some(rnd, topo.All()), Load: load(rnd, topo)}
		for range 20 {
			d.CPUs = rnd.IntN(26)
			next := BestEffort(topo, d).CPUs
			if want := min(d.CPUs, d.Allowed.Len()); next.Len() != want || !d.Allowed.Contains(next) {
				t.Fatalf("%+v: got %v, want %d CPUs", d, next, want)
			}
			if !next.Contains(d.Have) && !d.Have.Contains(next) {
				t.Fatalf("%+v: moved to %v", d, next)
			}
			d.Have, d.Load = next, load(rnd, topo)
		}
	}
}

// For any load, BestEffort must exchange at most Swaps CPUs. A second call with
// the same load must choose the same CPUs.
func TestBestEffortSwapsFewAndComesToRest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	topo := machine(2, 2, 4, 2)
	for range 1000 {
		d := Demand{CPUs: rnd.IntN(33), Allowed: topo.All(), Swaps: rnd.IntN(6), Load: load(rnd, topo)}
		d.Have = BestEffort(topo, d).CPUs
		d.Load = load(rnd, topo)
		same := maps.Clone(d.Load)
		for turn := 0; ; turn++ {
			next := BestEffort(topo, d).CPUs
			if gone := d.Have.Minus(next).Len(); gone > d.Swaps {
				t.Fatalf("%+v: %d CPUs were swapped", d, gone)
			}
			if next == d.Have {
				break
			}
			if turn > 40 {
				t.Fatalf("%+v: does not come to rest", d)
			}
			d.Have = next
		}
		if !maps.Equal(same, d.Load) {
			t.Fatal("the load was changed")
		}
	}
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

func load(rnd *rand.Rand, t node.Topology) map[unit.CPU]unit.MilliCPU {
	m := map[unit.CPU]unit.MilliCPU{}
	for _, c := range t.CPUs {
		if rnd.IntN(2) == 0 {
			m[c.ID] = unit.MilliCPU(rnd.IntN(1000))
		}
	}
	return m
}

func BenchmarkBestEffort(b *testing.B) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for name, topo := range map[string]node.Topology{"104 CPUs": machine(2, 1, 26, 2), "1024 CPUs": machine(8, 8, 8, 2)} {
		d := Demand{CPUs: len(topo.CPUs) / 2, Allowed: topo.All(), Load: load(rnd, topo), Swaps: 8}
		d.Have = BestEffort(topo, d).CPUs
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				BestEffort(topo, d)
			}
		})
	}
}
