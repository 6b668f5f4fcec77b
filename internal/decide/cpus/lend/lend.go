// Package lend chooses the CPUs on which best-effort work may run: the CPUs
// that latency-sensitive work uses least.
package lend

import (
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Demand says how many CPUs BE work may use, and holds the data for the
// choice. The zero Demand asks for no CPUs.
type Demand struct {
	// CPUs is the number of CPUs that BE may use. If Allowed has fewer, BE gets
	// all of Allowed.
	CPUs int
	// Allowed are the CPUs to choose from.
	Allowed unit.CPUSet
	// Load is the mean usage of each CPU by LS work. A CPU that is absent has
	// no load.
	Load map[unit.CPU]unit.MilliCPU
	// Bound are CPUs to which LS work is bound. They rate as the busiest CPUs,
	// even if they are idle now.
	Bound unit.CPUSet
	// Have are the CPUs that BE work has now. It keeps each of them unless
	// another CPU is clearly better.
	Have unit.CPUSet
	// Swaps is the maximum number of CPUs of Have that are exchanged for better
	// CPUs.
	Swaps int
}

// A Choice is the set of CPUs for a Demand.
type Choice struct {
	CPUs unit.CPUSet
	// Beside is the number of CPUs that share a core with LS work.
	Beside int
}

// BestEffort chooses the CPUs for BE work: those that LS work uses least. Cores
// with the lowest LS usage come first. Whole cores come before parts of cores,
// so that few cores run both classes. Cores to which LS work is bound come
// last. Among equal cores the choice alternates between the NUMA nodes and L3
// caches, so that BE does not disturb only one cache or node.
//
// BE work keeps its present CPUs. If d.CPUs rises, BE gets more CPUs. If d.CPUs
// falls, BE loses its worst CPUs. At most d.Swaps CPUs are exchanged for free
// CPUs that are clearly better.
func BestEffort(t node.Topology, d Demand) Choice {
	cores := coresOf(t, d)
	held, free := heldSeats(cores), freeSeats(cores)
	n := min(max(d.CPUs, 0), len(held)+len(free))
	kept := held[:min(n, len(held))]
	added, rest := free[:n-len(kept)], free[n-len(kept):]
	for i := range min(d.Swaps, len(kept), len(rest)) {
		last := &kept[len(kept)-1-i]
		if rest[i].level >= last.level {
			break
		}
		*last = rest[i]
	}
	var c Choice
	for _, seats := range [][]seat{kept, added} {
		for _, s := range seats {
			c.CPUs.Add(s.cpu)
			if s.beside {
				c.Beside++
			}
		}
	}
	return c
}

// A seat is one CPU to choose, with its rating.
type seat struct {
	cpu    unit.CPU
	level  level
	beside bool
}

// heldSeats lists the CPUs of Demand.Have from the best to the worst.
func heldSeats(cores []core) []seat {
	var all []part
	for i := range cores {
		c := &cores[i]
		if len(c.held) == 0 {
			continue
		}
		p := part{core: c, cpus: c.held, level: c.levelIfHeld()}
		if len(c.held) < c.size {
			p.flaw = 1
		}
		all = append(all, p)
	}
	return seatsOf(all, nil)
}

// freeSeats lists the other CPUs of Demand.Allowed, from the best to the worst.
func freeSeats(cores []core) []seat {
	var all []part
	taken := map[int]int{} // number of cores with held CPUs, by cache
	for i := range cores {
		c := &cores[i]
		if len(c.held) > 0 {
			taken[c.cache]++
		}
		if len(c.free) == 0 {
			continue
		}
		p := part{core: c, cpus: c.free, level: c.level()}
		if len(c.held)+len(c.free) < c.size {
			p.flaw = 1
		}
		if len(c.held) == 0 {
			p.flaw += 2 // a partly held core is completed before another is started
		}
		all = append(all, p)
	}
	return seatsOf(all, taken)
}

// A part is a set of CPUs of one core that are chosen together.
type part struct {
	core  *core
	cpus  []unit.CPU
	level level
	flaw  int // rating among parts of its level; 0 is best
	turn  int // its position among equal parts of the same cache
}

// seatsOf sorts parts from the best to the worst. Among equal parts it
// alternates between the caches. taken holds the number of parts that are
// already chosen in each cache.
func seatsOf(all []part, taken map[int]int) []seat {
	type rank struct {
		cache int
		level level
		flaw  int
	}
	turns := map[rank]int{}
	n := 0
	for i := range all {
		p := &all[i]
		r := rank{p.core.cache, p.level, p.flaw}
		p.turn = taken[r.cache] + turns[r]
		turns[r]++
		n += len(p.cpus)
	}
	slices.SortStableFunc(all, part.compare)
	seats := make([]seat, 0, n)
	for _, p := range all {
		for _, c := range p.cpus {
			seats = append(seats, seat{c, p.level, p.core.isBusy()})
		}
	}
	return seats
}
