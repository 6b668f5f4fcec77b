// Package pick chooses which CPUs a demand gets on a topology. A choice is a
// value without effect: callers compare it, print it, and put it into a want.
package pick

import (
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Demand is how many CPUs best-effort work may have, and what decides which.
// The zero Demand asks for none.
type Demand struct {
	// CPUs is how many it may have. Where fewer are allowed it gets these.
	CPUs int
	// Allowed are the CPUs to choose from.
	Allowed unit.CPUSet
	// Load is what latency-sensitive work uses of each CPU, as a mean. A CPU
	// that is not in it carries none.
	Load map[unit.CPU]unit.MilliCPU
	// Bound are CPUs to which latency-sensitive work is bound: as bad a place
	// as the busiest, however idle they are now.
	Bound unit.CPUSet
	// Have are the CPUs that best-effort work has now. A choice keeps them as
	// long as they are about as good as others.
	Have unit.CPUSet
	// Swaps is how many CPUs of Have, at most, are exchanged for better ones.
	Swaps int
}

// A Choice is the CPUs that a demand gets.
type Choice struct {
	CPUs unit.CPUSet
	// Beside is how many of them share a core with latency-sensitive work.
	Beside int
}

// BestEffort chooses CPUs for best-effort work by where latency-sensitive work
// is not. Cores on which that uses least come first, and whole cores before
// parts of cores, so that as few cores as possible run both; a core where it
// is bound comes last. Equal cores are taken in turn from the NUMA nodes and
// L3 caches, so that none carries all of the disturbance.
//
// What best-effort work has now stays: to grow, it gets more CPUs; to shrink,
// it loses the worst; and up to Swaps CPUs are exchanged where free ones are
// clearly better.
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
			c.CPUs = c.CPUs.With(s.cpu)
			if s.beside {
				c.Beside++
			}
		}
	}
	return c
}

// A seat is one CPU to choose.
type seat struct {
	cpu    unit.CPU
	level  level
	beside bool
}

// heldSeats lists the CPUs of Have from the best to the worst.
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

// freeSeats lists the other allowed CPUs from the best to the worst.
func freeSeats(cores []core) []seat {
	var all []part
	taken := map[int]int{} // cores in use, by cache
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
			p.flaw += 2 // a core that is in use is completed before another is begun
		}
		all = append(all, p)
	}
	return seatsOf(all, taken)
}

// A part is the CPUs of one core that are chosen one after the other.
type part struct {
	core  *core
	cpus  []unit.CPU
	level level
	flaw  int // what makes it worse than others of its level; 0: nothing
	turn  int // its place among its equals of the same cache
}

// seatsOf sorts parts by worth. Of equal ones the caches take turns, where
// taken is how many turns each has had already.
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
			seats = append(seats, seat{c, p.level, p.core.busy()})
		}
	}
	return seats
}
