package treeorder

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// random returns the CPUs of a random machine in ascending order. Siblings have
// neighbouring or distant numbers, the NUMA nodes of a socket have any numbers,
// caches may span NUMA nodes, and some CPUs are offline.
func random(rnd *rand.Rand) []node.LogicalCPU {
	sockets, nodes, caches, cores, threads := 1+rnd.IntN(3), 1+rnd.IntN(3), 1+rnd.IntN(3), 1+rnd.IntN(4), 1+rnd.IntN(2)
	perCache := cores * (1 + rnd.IntN(2)) // larger than a NUMA node if caches is 1
	all := sockets * nodes * caches * cores
	far, numbers := rnd.IntN(2) == 0, rnd.Perm(sockets*nodes)
	var cpus []node.LogicalCPU
	for core := range all {
		for thread := range threads {
			id := core*threads + thread
			if far {
				id = core + thread*all
			}
			if rnd.IntN(8) == 0 {
				continue
			}
			cpus = append(cpus, node.LogicalCPU{
				ID: unit.CPU(id), Core: node.CoreID(core), L3: node.CacheID(core / perCache),
				NUMA: node.NUMANode(numbers[core/(cores*caches)]), Socket: node.SocketID(core / (cores * caches * nodes)),
			})
		}
	}
	slices.SortFunc(cpus, func(a, b node.LogicalCPU) int { return int(a.ID - b.ID) })
	return cpus
}

// ranges returns how many runs of neighbours have the same key, and how many
// keys there are.
func ranges[K comparable](cpus []node.LogicalCPU, key func(node.LogicalCPU) K) (runs, keys int) {
	seen := map[K]bool{}
	for i, c := range cpus {
		if i == 0 || key(cpus[i-1]) != key(c) {
			runs++
		}
		seen[key(c)] = true
	}
	return runs, len(seen)
}

// TestEachPartIsARange orders random machines. Each socket, NUMA node, cache and
// core must be one range of the list, no CPU may be lost, and the order must not
// depend on the order of the input.
func TestEachPartIsARange(t *testing.T) {
	rnd := rand.New(rand.NewPCG(71, 72))
	for range 2000 {
		cpus := random(rnd)
		given := slices.Clone(cpus)
		sorted, socket := Sort(cpus)
		if !slices.Equal(given, cpus) {
			t.Fatal("the input is changed")
		}
		of := func(c node.LogicalCPU) node.SocketID { return socket[c.NUMA] }
		for level, count := range map[string]func() (int, int){
			"sockets":    func() (int, int) { return ranges(sorted, of) },
			"NUMA nodes": func() (int, int) { return ranges(sorted, func(c node.LogicalCPU) node.NUMANode { return c.NUMA }) },
			"caches":     func() (int, int) { return ranges(sorted, cacheOf) },
			"cores":      func() (int, int) { return ranges(sorted, coreOf) },
		} {
			if runs, keys := count(); runs != keys {
				t.Fatalf("%d %s are in %d ranges: %+v", keys, level, runs, sorted)
			}
		}
		rnd.Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
		if again, _ := Sort(given); !slices.Equal(again, sorted) {
			t.Fatalf("the order depends on the input: %+v and %+v", sorted, again)
		}
		slices.SortFunc(sorted, func(a, b node.LogicalCPU) int { return int(a.ID - b.ID) })
		if !slices.Equal(sorted, cpus) {
			t.Fatalf("CPUs are lost or made: %+v of %+v", sorted, cpus)
		}
	}
}

// TestCachesAndCoresComeInTheOrderOfTheirLowestCPU orders a NUMA node whose
// hardware numbers caches and cores in another order than CPUs.
func TestCachesAndCoresComeInTheOrderOfTheirLowestCPU(t *testing.T) {
	cpu := func(id unit.CPU, core node.CoreID, l3 node.CacheID) node.LogicalCPU {
		return node.LogicalCPU{ID: id, Core: core, L3: l3}
	}
	sorted, _ := Sort([]node.LogicalCPU{cpu(5, 0, 0), cpu(4, 1, 0), cpu(3, 7, 9), cpu(2, 8, 9), cpu(1, 1, 0), cpu(0, 7, 9)})
	var ids []unit.CPU
	for _, c := range sorted {
		ids = append(ids, c.ID)
	}
	if want := []unit.CPU{0, 3, 2, 1, 4, 5}; !slices.Equal(ids, want) {
		t.Errorf("the order is %v, want %v", ids, want)
	}
}

// TestWhatOneCacheAndOneCoreAre compares CPUs whose numbers agree in part. The
// kernel numbers cores and caches anew in each socket.
func TestWhatOneCacheAndOneCoreAre(t *testing.T) {
	a := node.LogicalCPU{ID: 0, Core: 1, L3: 1, NUMA: 1, Socket: 1}
	for name, c := range map[string]struct {
		change      func(*node.LogicalCPU)
		cache, core bool
	}{
		"a sibling":              {func(c *node.LogicalCPU) { c.ID = 9 }, true, true},
		"another core":           {func(c *node.LogicalCPU) { c.Core = 2 }, true, false},
		"another cache":          {func(c *node.LogicalCPU) { c.L3 = 2 }, false, false},
		"a cache of two nodes":   {func(c *node.LogicalCPU) { c.NUMA = 2 }, false, false},
		"the same in a socket":   {func(c *node.LogicalCPU) { c.Socket = 2 }, false, false},
		"a core of another kind": {func(c *node.LogicalCPU) { c.Kind = 1 }, true, true},
	} {
		b := a
		c.change(&b)
		if SameCache(a, b) != c.cache || SameCore(a, b) != c.core || SameCache(b, a) != c.cache || SameCore(b, a) != c.core {
			t.Errorf("%s: cache %v, core %v; want %v, %v", name, SameCache(a, b), SameCore(a, b), c.cache, c.core)
		}
	}
}

// TestSocketsThatShareANodeAreOne has virtual machines whose NUMA nodes span
// sockets.
func TestSocketsThatShareANodeAreOne(t *testing.T) {
	cpu := func(id unit.CPU, numa node.NUMANode, socket node.SocketID) node.LogicalCPU {
		return node.LogicalCPU{ID: id, Core: node.CoreID(id), NUMA: numa, Socket: socket}
	}
	// Sockets 1 and 2 share node 0, and sockets 2 and 3 share node 1.
	_, socket := Sort([]node.LogicalCPU{cpu(0, 0, 2), cpu(1, 0, 1), cpu(2, 1, 3), cpu(3, 1, 2), cpu(4, 2, 4)})
	if socket[0] != 1 || socket[1] != 1 || socket[2] != 4 || len(socket) != 3 {
		t.Errorf("the sockets of the nodes are %v", socket)
	}
	if sorted, none := Sort(nil); len(sorted) != 0 || len(none) != 0 {
		t.Errorf("no CPUs are %v, %v", sorted, none)
	}
}
