package pick

import (
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestExclusiveTakesWholeCoresOfOneCache(t *testing.T) {
	topo := machine(2, 2, 2, 2) // four CPUs per cache, eight per NUMA node
	for name, c := range map[string]struct {
		free, have string
		n          int
		want       string
		split      int
	}{
		"a core":                                        {"0-15", "", 2, "14-15", 0},
		"a cache":                                       {"0-15", "", 4, "12-15", 0},
		"a NUMA node":                                   {"0-15", "", 6, "10-15", 0},
		"more than a node":                              {"0-15", "", 10, "6-15", 0},
		"the cache with the fewest left":                {"0-13", "", 2, "12-13", 0},
		"no cache that is too small":                    {"0-13", "", 4, "8-11", 0},
		"an odd one from a core that is broken":         {"0-14", "", 3, "12-14", 1},
		"but not at the price of another cache":         {"0-12", "", 3, "9-11", 1},
		"an odd one breaks a core":                      {"0-15", "", 1, "15", 1},
		"whole cores in two nodes before halves in one": {"0-1,8,10,12-13", "", 4, "0-1,12-13", 0},
		"it keeps what it has":                          {"0-15", "0-1", 2, "0-1", 0},
		"it grows in place":                             {"0-15", "0-1", 4, "0-3", 0},
		"a half is completed first":                     {"0-15", "0", 3, "0-1,3", 1},
		"it keeps the better part":                      {"0-15", "0-1,4", 2, "0-1", 0},
		"what it lost is replaced":                      {"0-13", "14-15", 2, "12-13", 0},
		"everything":                                    {"0-15", "", 16, "0-15", 0},
	} {
		got, ok := Exclusive(topo, Want{CPUs: c.n, Free: set(t, c.free), Have: set(t, c.have)})
		if !ok || got.CPUs.String() != c.want || got.Split != c.split {
			t.Errorf("%s: got %q with %d split, %v; want %q with %d", name, got.CPUs, got.Split, ok, c.want, c.split)
		}
	}
	for name, c := range map[string]Want{
		"more than is free": {CPUs: 3, Free: set(t, "0-1")},
		"none":              {Free: set(t, "0-1")},
		"less than none":    {CPUs: -1, Free: set(t, "0-1")},
		"CPUs that are not": {CPUs: 1, Free: set(t, "16-20")},
		"nothing is free":   {CPUs: 1},
	} {
		if got, ok := Exclusive(topo, c); ok {
			t.Errorf("%s: got %v", name, got.CPUs)
		}
	}
}

// TestExclusiveIsAsGoodAsCanBe gives CPUs to random claims on random machines
// and takes some back. It checks that they never overlap, that cores are whole
// if possible, and that they are on as few NUMA nodes and caches as possible.
func TestExclusiveIsAsGoodAsCanBe(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	for try := range 150 {
		nodes, caches, cores, threads := 1+rnd.IntN(4), 1+rnd.IntN(4), 1+rnd.IntN(8), 1+rnd.IntN(3)
		if try%50 == 0 {
			nodes, caches, cores, threads = 8, 8, 8, 2 // 1024 CPUs
		}
		topo := machine(nodes, caches, cores, threads)
		free := topo.All()
		var given []unit.CPUSet
		for range 12 {
			if len(given) > 0 && rnd.IntN(3) == 0 {
				free = free.Union(given[0])
				given = given[1:]
			}
			claim := Want{CPUs: 1 + rnd.IntN(max(len(topo.CPUs)/3, 2)), Free: free}
			got, ok := Exclusive(topo, claim)
			if ok != (free.Len() >= claim.CPUs) {
				t.Fatalf("%d of %v: %v", claim.CPUs, free, ok)
			}
			if !ok {
				continue
			}
			if got.CPUs.Len() != claim.CPUs || !free.Contains(got.CPUs) {
				t.Fatalf("%d of %v: got %v", claim.CPUs, free, got.CPUs)
			}
			split, spread := wholeIn(topo, free)
			need := claim.CPUs
			if whole := split / threads * threads; need%threads == 0 && need <= whole {
				if got.Split != 0 {
					t.Fatalf("%d of %v, %d threads a core: %v splits %d", need, free, threads, got.CPUs, got.Split)
				}
				if least := spread(need, func(c node.LogicalCPU) int { return int(c.NUMA) }); got.Nodes != least {
					t.Fatalf("%d of %v: %v is on %d nodes; %d suffice", need, free, got.CPUs, got.Nodes, least)
				}
				if least := spread(need, func(c node.LogicalCPU) int { return int(c.L3) }); least == 1 && got.Caches != 1 {
					t.Fatalf("%d of %v: %v is on %d caches; 1 suffices", need, free, got.CPUs, got.Caches)
				}
			}
			if again, _ := Exclusive(topo, claim); again != got {
				t.Fatalf("%v, and then %v", got, again)
			}
			claim.Have = got.CPUs
			if kept, _ := Exclusive(topo, claim); kept.CPUs != got.CPUs || kept.Split != got.Split || kept.Nodes != got.Nodes || kept.Caches != got.Caches {
				t.Fatalf("had %+v, gets %+v", got, kept)
			}
			claim.CPUs++
			if more, ok := Exclusive(topo, claim); ok && !more.CPUs.Contains(got.CPUs) {
				t.Fatalf("had %v, gets %v to grow by one", got.CPUs, more.CPUs)
			}
			if claim.CPUs -= 2; claim.CPUs > 0 {
				if less, _ := Exclusive(topo, claim); !got.CPUs.Contains(less.CPUs) || less.CPUs.Len() != claim.CPUs {
					t.Fatalf("had %v, gets %v to shrink by one", got.CPUs, less.CPUs)
				}
			}
			free = free.Minus(got.CPUs)
			given = append(given, got.CPUs)
		}
	}
}

// wholeIn counts the CPUs of wholly free cores. The function that it returns
// gives the smallest number of parts of the machine that contain n of these
// CPUs.
func wholeIn(topo node.Topology, free unit.CPUSet) (int, func(n int, part func(node.LogicalCPU) int) int) {
	var whole []node.LogicalCPU
	for _, c := range topo.CPUs {
		if free.Contains(topo.Siblings(c.ID)) {
			whole = append(whole, c)
		}
	}
	return len(whole), func(n int, part func(node.LogicalCPU) int) int {
		size := map[int]int{}
		for _, c := range whole {
			size[part(c)]++
		}
		parts := 0
		for ; n > 0; parts++ {
			largest := 0
			for p := range size {
				if size[p] > size[largest] || size[largest] == 0 {
					largest = p
				}
			}
			n -= size[largest]
			delete(size, largest)
		}
		return parts
	}
}

// TestExclusiveWithstandsStrangeMachines uses cores of different sizes, cores
// that span caches and nodes, and offline CPUs.
func TestExclusiveWithstandsStrangeMachines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(23, 24))
	for range 400 {
		var topo node.Topology
		for c := range 1 + rnd.IntN(40) {
			if rnd.IntN(4) > 0 {
				topo.CPUs = append(topo.CPUs, node.LogicalCPU{
					ID: unit.CPU(c), Core: node.CoreID(rnd.IntN(12)), L3: node.CacheID(rnd.IntN(5)), NUMA: node.NUMANode(rnd.IntN(3)),
				})
			}
		}
		c := Want{CPUs: rnd.IntN(20), Free: some(rnd, topo.All()), Have: some(rnd, topo.All())}
		got, ok := Exclusive(topo, c)
		if want := c.CPUs > 0 && c.Free.Len() >= c.CPUs; ok != want {
			t.Fatalf("%+v: %v", c, ok)
		}
		if ok && (got.CPUs.Len() != c.CPUs || !c.Free.Contains(got.CPUs)) {
			t.Fatalf("%+v: got %v", c, got.CPUs)
		}
	}
}

func BenchmarkExclusive(b *testing.B) {
	topo := machine(8, 8, 8, 2)
	for b.Loop() {
		Exclusive(topo, Want{CPUs: 24, Free: topo.All()})
	}
}
