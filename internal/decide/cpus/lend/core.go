package lend

import (
	"cmp"
	"math"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A level rates a core for BE work. 0 is a core without LS work, and a higher
// level is worse. Cores of one level count as equal, so that a small change of
// load does not change the choice.
type level int

const (
	// quiet is 5 % of a CPU, the usual load of housekeeping. A core with less
	// load counts as free of LS work.
	quiet unit.MilliCPU = 50
	// grain is the load between two levels.
	grain unit.MilliCPU = 250
	// margin is subtracted from the load of a core that BE holds. BE therefore
	// leaves a core only for one that is clearly better. margin is larger than
	// quiet. Otherwise a core that BE has left would look better again at once.
	margin unit.MilliCPU = 100
	// worstLevel is the level of a core to which LS work is bound.
	worstLevel level = math.MaxInt
)

// A core is the set of the CPUs of one physical core.
type core struct {
	held, free []unit.CPU // CPUs that BE work has, and other CPUs that it may get
	size       int        // number of all its CPUs, allowed or not
	load       unit.MilliCPU
	bound      bool
	cache      int // number from cachesOf
}

// isBusy reports whether LS work uses the core.
func (c *core) isBusy() bool { return c.bound || c.load >= quiet }

func (c *core) level() level       { return c.levelAt(c.load) }
func (c *core) levelIfHeld() level { return c.levelAt(c.load - margin) }

func (c *core) levelAt(load unit.MilliCPU) level {
	switch {
	case c.bound:
		return worstLevel
	case load < quiet:
		return 0
	}
	return 1 + level((load-quiet)/grain)
}

// compare orders parts. The better part sorts first.
func (p part) compare(o part) int {
	return cmp.Or(cmp.Compare(p.level, o.level), cmp.Compare(p.flaw, o.flaw),
		cmp.Compare(p.turn, o.turn), cmp.Compare(p.core.cache, o.core.cache))
}

// coresOf groups the CPUs of t by core, in the order of t.
func coresOf(t node.Topology, d Demand) []core {
	caches := cachesOf(t)
	index := make(map[node.CoreID]int, len(t.CPUs))
	all := make([]core, 0, len(t.CPUs))
	for _, c := range t.CPUs {
		i, known := index[c.Core]
		if !known {
			i = len(all)
			index[c.Core] = i
			all = append(all, core{cache: caches[cache{c.NUMA, c.L3}]})
		}
		it := &all[i]
		it.size++
		it.load += d.Load[c.ID]
		it.bound = it.bound || d.Bound.Has(c.ID)
		switch {
		case !d.Allowed.Has(c.ID):
		case d.Have.Has(c.ID):
			it.held = append(it.held, c.ID)
		default:
			it.free = append(it.free, c.ID)
		}
	}
	return all
}

// A cache is an L3 cache, or the part of an L3 cache that belongs to one NUMA
// node.
type cache struct {
	numa node.NUMANode
	l3   node.CacheID
}

// cachesOf numbers the caches: first the first cache of each NUMA node, then
// the second cache of each, and so on.
func cachesOf(t node.Topology) map[cache]int {
	number := map[cache]int{}
	nodes := map[node.NUMANode]int{}
	in := map[node.NUMANode]int{}
	for _, c := range t.CPUs {
		k := cache{c.NUMA, c.L3}
		if _, known := number[k]; known {
			continue
		}
		if _, known := nodes[c.NUMA]; !known {
			nodes[c.NUMA] = len(nodes)
		}
		number[k] = in[c.NUMA]*unit.MaxCPUs + nodes[c.NUMA]
		in[c.NUMA]++
	}
	return number
}
