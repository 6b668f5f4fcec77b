package pick

import (
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// chooseExclusive chooses n of the free CPUs for a workload that owns them.
func chooseExclusive(topo node.Topology, n int, free, have unit.CPUSet, bind cpus.Bind) (Offer, bool) {
	m := Compile(topo)
	o, why := m.Resize(m.Seats(m.All().Minus(free), 0, nil), cpus.Request{Policy: cpus.Exclusive, CPUs: n, Bind: bind}, have)
	return o, why == cpus.Fits
}

func TestOwnCPUsAreWholeCoresOfOneCache(t *testing.T) {
	topo := machine(2, 2, 2, 2) // four CPUs per cache, eight per NUMA node
	for name, c := range map[string]struct {
		free, have string
		n          int
		bind       cpus.Bind
		want       string
		split      int
	}{
		"a core":                                      {"0-15", "", 2, cpus.AnyCores, "14-15", 0},
		"a cache":                                     {"0-15", "", 4, cpus.AnyCores, "12-15", 0},
		"a NUMA node":                                 {"0-15", "", 6, cpus.AnyCores, "10-15", 0},
		"more than a node":                            {"0-15", "", 10, cpus.AnyCores, "6-15", 0},
		"the cache with the fewest left":              {"0-13", "", 2, cpus.AnyCores, "12-13", 0},
		"no cache that is too small":                  {"0-13", "", 4, cpus.AnyCores, "8-11", 0},
		"an odd one from a core that is broken":       {"0-14", "", 3, cpus.AnyCores, "12-14", 1},
		"but not at the price of another cache":       {"0-12", "", 3, cpus.AnyCores, "9-11", 1},
		"an odd one breaks a core":                    {"0-15", "", 1, cpus.AnyCores, "15", 1},
		"halves in one cache before two caches":       {"0-1,4,6,12-13", "", 4, cpus.AnyCores, "0-1,4,6", 2},
		"whole cores wherever they are, if preferred": {"0-1,4,6,12-13", "", 4, cpus.PreferWhole, "0-1,12-13", 0},
		"whole cores only":                            {"0-1,4,6,12-13", "", 4, cpus.OnlyWhole, "0-1,12-13", 0},
		"one CPU of each core":                        {"0-7", "", 4, cpus.PreferSpread, "1,3,5,7", 4},
		"it keeps what it has":                        {"0-15", "0-1", 2, cpus.AnyCores, "0-1", 0},
		"it grows in place":                           {"0-15", "0-1", 4, cpus.AnyCores, "0-3", 0},
		"a half is completed first":                   {"0-15", "0", 3, cpus.AnyCores, "0-1,3", 1},
		"it keeps the better part":                    {"0-15", "0-1,4", 2, cpus.AnyCores, "0-1", 0},
		"what it lost is replaced":                    {"0-13", "14-15", 2, cpus.AnyCores, "12-13", 0},
		"everything":                                  {"0-15", "", 16, cpus.AnyCores, "0-15", 0},
	} {
		got, ok := chooseExclusive(topo, c.n, set(t, c.free), set(t, c.have), c.bind)
		if !ok || got.CPUs.String() != c.want || got.Split != c.split {
			t.Errorf("%s: got %q with %d split, %v; want %q with %d", name, got.CPUs, got.Split, ok, c.want, c.split)
		}
	}
	for name, c := range map[string]struct {
		free string
		n    int
	}{"more than is free": {"0-1", 3}, "none": {"0-1", 0}, "less than none": {"0-1", -1}, "CPUs that are not": {"16-20", 1}, "nothing is free": {"", 1}} {
		if got, ok := chooseExclusive(topo, c.n, set(t, c.free), unit.CPUSet{}, cpus.AnyCores); ok {
			t.Errorf("%s: got %v", name, got.CPUs)
		}
	}
}

// TestOwnCPUsGrowAndShrinkInPlace gives CPUs to random claims on random
// machines and takes some back. Two claims must never overlap, the same claim
// must get the same answer, and a workload must keep the CPUs that it has.
func TestOwnCPUsGrowAndShrinkInPlace(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	for try := range 150 {
		most := 128
		if try%75 == 0 {
			most = 1024
		}
		topo := anyMachine(rnd, most)
		free := topo.All()
		var given []unit.CPUSet
		for range 8 {
			if len(given) > 0 && rnd.IntN(3) == 0 {
				free = free.Union(given[0])
				given = given[1:]
			}
			n, bind := 1+rnd.IntN(max(len(topo.CPUs)/3, 2)), []cpus.Bind{cpus.AnyCores, cpus.PreferWhole, cpus.PreferSpread}[rnd.IntN(3)]
			got, ok := chooseExclusive(topo, n, free, unit.CPUSet{}, bind)
			if ok != (free.Len() >= n) {
				t.Fatalf("%d of %v: %v", n, free, ok)
			}
			if !ok {
				continue
			}
			if again, _ := chooseExclusive(topo, n, free, unit.CPUSet{}, bind); again != got {
				t.Fatalf("%v, and then %v", got, again)
			}
			if kept, _ := chooseExclusive(topo, n, free, got.CPUs, bind); kept != got {
				t.Fatalf("had %+v, gets %+v", got, kept)
			}
			if more, ok := chooseExclusive(topo, n+1, free, got.CPUs, bind); ok != (free.Len() > n) || ok && (!more.CPUs.Contains(got.CPUs) || more.CPUs.Len() != n+1 || !free.Contains(more.CPUs)) {
				t.Fatalf("had %v, gets %v of %v to grow by one", got.CPUs, more.CPUs, free)
			}
			if less, ok := chooseExclusive(topo, n-1, free, got.CPUs, bind); ok != (n > 1) || ok && (!got.CPUs.Contains(less.CPUs) || less.CPUs.Len() != n-1) {
				t.Fatalf("had %v, gets %v to shrink by one", got.CPUs, less.CPUs)
			}
			free = free.Minus(got.CPUs)
			given = append(given, got.CPUs)
		}
	}
}

// TestOneKindOfCoreIsPreferred uses a machine with four fast CPUs and eight
// slow ones in one L3 cache.
func TestOneKindOfCoreIsPreferred(t *testing.T) {
	topo := machine(1, 1, 6, 2)
	for i := 4; i < 12; i++ {
		topo.CPUs[i].Kind = 1
	}
	for n, want := range map[int]string{2: "2-3", 4: "0-3", 6: "6-11", 10: "2-11"} {
		if got, ok := chooseExclusive(topo, n, topo.All(), unit.CPUSet{}, cpus.AnyCores); !ok || got.CPUs.String() != want {
			t.Errorf("%d CPUs are %v, want %s", n, got.CPUs, want)
		}
	}
}

// TestSocketsCountAmongEqualChoices makes two claims. The first one needs two
// of four NUMA nodes, and the second one a part of a core.
func TestSocketsCountAmongEqualChoices(t *testing.T) {
	topo := machine(4, 1, 4, 2) // eight CPUs a node
	for i := range topo.CPUs {
		topo.CPUs[i].Socket /= 2
	}
	if got, _ := chooseExclusive(topo, 14, set(t, "0-6,8-15,17-23,24-30"), unit.CPUSet{}, cpus.AnyCores); got.Sockets != 1 || got.Nodes != 2 {
		t.Errorf("14 CPUs are %v, on %d sockets", got.CPUs, got.Sockets)
	}
	if got, _ := chooseExclusive(topo, 11, set(t, "0-7,9-12,16,20"), unit.CPUSet{}, cpus.AnyCores); got.Nodes != 2 {
		t.Errorf("11 CPUs are %v, on %d NUMA nodes", got.CPUs, got.Nodes)
	}
}
