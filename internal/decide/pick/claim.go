package pick

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Want is the number of exclusive CPUs that a workload wants.
type Want struct {
	// CPUs is the number of CPUs. The workload gets all of them or none.
	CPUs int
	// Free are the CPUs to choose from, including those of Have.
	Free unit.CPUSet
	// Have are the CPUs that the workload has now. It keeps them while the
	// number stays the same, because a move to improve the layout costs more
	// than it gains.
	Have unit.CPUSet
}

// A Place is a set of CPUs that meets a Want, with its defects.
type Place struct {
	CPUs unit.CPUSet
	// Split is the number of CPUs that share a core with CPUs outside the
	// offer.
	Split int
	// Nodes and Caches are the numbers of NUMA nodes and L3 caches over which
	// the CPUs are spread.
	Nodes, Caches int

	broken int // cores that were wholly free before and are not any more
	left   int // CPUs of wholly free cores that are left in the used caches
}

// Exclusive chooses exclusive CPUs for a workload. It prefers, in this order:
// whole cores, because work on a sibling disturbs most; few NUMA nodes and few
// L3 caches; few gaps in the remaining CPUs; high CPU numbers, because the
// system's own work prefers low numbers. It is false if there are not enough
// CPUs.
func Exclusive(t node.Topology, c Want) (Place, bool) {
	c.Free = c.Free.Intersect(t.All())
	c.Have = c.Have.Intersect(c.Free)
	if c.CPUs <= 0 || c.Free.Len() < c.CPUs {
		return Place{}, false
	}
	if c.Have.Len() > c.CPUs {
		c.Free, c.Have = c.Have, unit.CPUSet{}
	}
	if c.Have.Len() == c.CPUs {
		return kept(t, c.Have), true
	}
	m := atlasOf(t, c)
	var best Place
	found := false
	for _, place := range m.places(c.CPUs - c.Have.Len()) {
		if o := m.offer(c.Have.Union(place)); !found || o.compare(best) < 0 {
			best, found = o, true
		}
	}
	return best, found
}

// kept returns the offer of the CPUs that a workload already has. It runs in
// every tick, so it works without an atlas.
func kept(t node.Topology, set unit.CPUSet) Place {
	o := Place{CPUs: set}
	cores := make(map[node.CoreID]int, set.Len())
	nodes, caches := map[node.NUMANode]bool{}, map[cache]bool{}
	for _, c := range t.CPUs {
		if set.Has(c.ID) {
			cores[c.Core]++
			nodes[c.NUMA], caches[cache{c.NUMA, c.L3}] = true, true
		}
	}
	o.Nodes, o.Caches = len(nodes), len(caches)
	for _, c := range t.CPUs {
		if !set.Has(c.ID) {
			o.Split += cores[c.Core]
			delete(cores, c.Core)
		}
	}
	return o
}

// compare orders offers from better to worse.
func (o Place) compare(p Place) int {
	return cmp.Or(cmp.Compare(o.Split, p.Split), cmp.Compare(o.Nodes, p.Nodes), cmp.Compare(o.Caches, p.Caches),
		cmp.Compare(o.broken, p.broken), cmp.Compare(o.left, p.left))
}

// An atlas is a topology reduced to the CPUs that one claim may use.
type atlas struct {
	cores []coreSeat // by descending CPU numbers
	cache map[cache][]int
	nodes map[node.NUMANode][]cache
	order []node.NUMANode
	at    map[unit.CPU]node.LogicalCPU
}

// A coreSeat is a core with the CPUs that the claim may use.
type coreSeat struct {
	at   cache
	free []unit.CPU // CPUs that the claim may get but does not have
	had  int        // number of CPUs that the claim has
	size int
}

// whole reports whether the claim has or may get all CPUs of the core.
func (c *coreSeat) whole() bool { return len(c.free)+c.had == c.size }

func atlasOf(t node.Topology, c Want) *atlas {
	m := &atlas{
		cache: map[cache][]int{}, nodes: map[node.NUMANode][]cache{}, at: make(map[unit.CPU]node.LogicalCPU, len(t.CPUs)),
	}
	index := make(map[node.CoreID]int, len(t.CPUs))
	for _, cpu := range slices.Backward(t.CPUs) {
		m.at[cpu.ID] = cpu
		i, known := index[cpu.Core]
		if !known {
			i = len(m.cores)
			index[cpu.Core] = i
			k := cache{cpu.NUMA, cpu.L3}
			if m.nodes[cpu.NUMA] == nil {
				m.order = append(m.order, cpu.NUMA)
			}
			if m.cache[k] == nil {
				m.nodes[cpu.NUMA] = append(m.nodes[cpu.NUMA], k)
			}
			m.cache[k] = append(m.cache[k], i)
			m.cores = append(m.cores, coreSeat{at: k})
		}
		core := &m.cores[i]
		core.size++
		switch {
		case c.Have.Has(cpu.ID):
			core.had++
		case c.Free.Has(cpu.ID):
			core.free = append(core.free, cpu.ID)
		}
	}
	return m
}

// places returns the possible choices of n more CPUs: within each cache, within
// each NUMA node, and over all nodes.
func (m *atlas) places(n int) []unit.CPUSet {
	var all []unit.CPUSet
	add := func(cores []int) {
		if set, ok := m.take(cores, n); ok {
			all = append(all, set)
		}
	}
	var everything []int
	groups := make([]group, 0, len(m.order))
	for _, numa := range m.order {
		inside := make([]group, 0, len(m.nodes[numa]))
		for _, k := range m.nodes[numa] {
			add(m.cache[k])
			inside = append(inside, m.group(m.cache[k]))
		}
		cores := arrange(inside, n)
		add(cores)
		groups = append(groups, m.group(cores))
	}
	// The number of CPUs that each node gives is known only here. The last node
	// does not give all of its CPUs, so its caches are arranged for the rest.
	for _, g := range arrangeGroups(groups, n) {
		inside := make([]group, 0, len(groups))
		for _, k := range m.nodes[m.cores[g.cores[0]].at.numa] {
			inside = append(inside, m.group(m.cache[k]))
		}
		everything = append(everything, arrange(inside, max(g.asked, 0))...)
	}
	add(everything)
	return all
}

// A group is a set of cores in one cache or NUMA node.
type group struct {
	cores []int
	whole int  // CPUs of wholly free cores
	free  int  // all free CPUs
	had   bool // the claim has CPUs here
	asked int  // number of CPUs that the groups before it leave to take
}

func (m *atlas) group(cores []int) group {
	g := group{cores: cores}
	for _, i := range cores {
		c := &m.cores[i]
		g.had = g.had || c.had > 0
		g.free += len(c.free)
		if c.whole() {
			g.whole += len(c.free)
		}
	}
	return g
}

// arrange lists the cores of groups in the order in which n CPUs are taken from
// them.
func arrange(groups []group, n int) []int {
	var cores []int
	for _, g := range arrangeGroups(groups, n) {
		cores = append(cores, g.cores...)
	}
	return cores
}

// arrangeGroups orders groups so that few of them provide n CPUs: first the
// groups in which the claim already has CPUs, then the smallest group that
// suffices alone, or else the largest, and so on.
func arrangeGroups(groups []group, n int) []group {
	rest := slices.Clone(groups)
	sorted := make([]group, 0, len(groups))
	for len(rest) > 0 {
		best := 0
		for i := 1; i < len(rest); i++ {
			if rest[i].before(rest[best], n) {
				best = i
			}
		}
		g := rest[best]
		g.asked = n
		sorted = append(sorted, g)
		n -= g.whole
		rest = slices.Delete(rest, best, best+1)
	}
	return sorted
}

// before reports whether n CPUs are taken from g before o.
func (g group) before(o group, n int) bool {
	if g.had != o.had {
		return g.had
	}
	enough, other := g.whole >= n, o.whole >= n
	switch {
	case enough != other:
		return enough
	case enough:
		return g.whole < o.whole
	case g.whole != o.whole:
		return g.whole > o.whole
	}
	return g.free > o.free
}

// take takes n CPUs from cores in this order: the rest of cores in which the
// claim has CPUs, whole cores, CPUs of cores that others also use, and finally
// a part of a free core.
func (m *atlas) take(cores []int, n int) (unit.CPUSet, bool) {
	var set unit.CPUSet
	pass := func(fits func(*coreSeat) bool) {
		for _, i := range cores {
			c := &m.cores[i]
			if n == 0 || len(c.free) == 0 || set.Has(c.free[0]) || !fits(c) {
				continue
			}
			for _, cpu := range c.free[:min(n, len(c.free))] {
				set = set.With(cpu)
				n--
			}
		}
	}
	most := 0
	for _, i := range cores {
		most = max(most, m.cores[i].size)
	}
	pass(func(c *coreSeat) bool { return c.had > 0 })
	for size := most; size > 0; size-- {
		pass(func(c *coreSeat) bool { return c.size == size && c.whole() && size <= n })
	}
	pass(func(c *coreSeat) bool { return !c.whole() })
	pass(func(*coreSeat) bool { return true })
	return set, n == 0
}

// offer returns the offer of a set of CPUs, with its defects.
func (m *atlas) offer(set unit.CPUSet) Place {
	o := Place{CPUs: set}
	nodes, caches := map[node.NUMANode]bool{}, map[cache]bool{}
	for c := range set.All() {
		at := m.at[c]
		nodes[at.NUMA], caches[cache{at.NUMA, at.L3}] = true, true
	}
	o.Nodes, o.Caches = len(nodes), len(caches)
	for k := range caches {
		for _, i := range m.cache[k] {
			c := &m.cores[i]
			taken := c.had
			for _, cpu := range c.free {
				if set.Has(cpu) {
					taken++
				}
			}
			switch {
			case taken > 0 && taken < c.size:
				o.Split += taken
				if c.whole() && c.had == 0 {
					o.broken++
				}
			case taken == 0 && c.whole():
				o.left += len(c.free)
			}
		}
	}
	return o
}
