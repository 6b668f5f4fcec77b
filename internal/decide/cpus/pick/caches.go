package pick

import (
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/knapsack"
)

// maxCaches is the largest number of sets of caches that a choice compares one
// by one.
const maxCaches = 600

// bestCaches chooses k of the free caches, in addition to those in base.
func (f *finder) bestCaches(base, free []int32, k int) (*selection, bool) {
	if k == 0 {
		s, ok := f.rate(slices.Clone(base))
		return &s, ok
	}
	if k == 1 || knapsack.Choices(len(free), k, maxCaches) <= maxCaches {
		return f.eachCaches(base, free, k)
	}
	return f.packedCaches(base, free, k)
}

// eachCaches rates all sets of k caches and returns the best one.
func (f *finder) eachCaches(base, free []int32, k int) (*selection, bool) {
	var best selection
	found := false
	set := make([]int32, len(base), len(base)+k)
	copy(set, base)
	var choose func(from, more int)
	choose = func(from, more int) {
		if more == 0 {
			if s, ok := f.rate(set); ok && (!found || f.better(&s, &best)) {
				s.leaves = append(best.leaves[:0], set...)
				best, found = s, true
			}
			return
		}
		for i := from; i+more <= len(free); i++ {
			set = append(set, free[i])
			choose(i+1, more-1)
			set = set[:len(set)-1]
		}
	}
	choose(0, k)
	return &best, found
}

// packedCaches chooses k caches among many. For each number of CPUs, it rates the
// set with the most whole cores.
func (f *finder) packedCaches(base, free []int32, k int) (*selection, bool) {
	n := f.n
	for _, i := range base {
		n -= f.leaves[i].room
	}
	items := make([]knapsack.Item, len(free))
	for at, i := range free {
		items[at] = knapsack.Item{Weight: f.leaves[i].room, Value: f.leaves[i].sum}
	}
	var best selection
	found := false
	knapsack.EachBest(items, k, max(n, 0), func(chosen []int32) {
		set := slices.Clone(base)
		for _, at := range chosen {
			set = append(set, free[at])
		}
		if s, ok := f.rate(set); ok && (!found || f.better(&s, &best)) {
			best, found = s, true
		}
	})
	return &best, found
}

// rate rates a set of caches. It returns false if the claim does not fit into them.
func (f *finder) rate(set []int32) (s selection, ok bool) {
	sum, open := int32(0), int32(0)
	if len(set) == 1 {
		sum = f.leaves[set[0]].room
		open = sum
	} else {
		left := f.scratch
		copy(left, f.room)
		for _, i := range set {
			sum += f.spend(left, f.leaves[i].domain, f.n)
			open += f.leaves[i].room
		}
	}
	if sum < f.n {
		return s, false
	}
	s = selection{leaves: set, left: open - f.n}
	if f.by.kind == anyCPU {
		s.split, s.broken = f.splitOf(set)
	}
	return s, true
}

// splitOf looks at the CPUs that the claim takes from a set of caches. It
// returns how many of them share a core with other work. broken is 1 if the claim
// takes only a part of a core that was wholly free.
func (f *finder) splitOf(set []int32) (split, broken int32) {
	clear(f.counts)
	partly, n := int32(0), f.n
	for _, i := range set {
		l := &f.leaves[i]
		n -= min(n, l.begun) // cores in which the claim has CPUs are completed first
		partly += l.partly
		for at, size := range f.m.sizes {
			f.counts[at] += min(l.whole[at], l.room/size)
		}
	}
	rest := n
	if len(f.counts) == 1 {
		rest -= f.m.sizes[0] * min(f.counts[0], n/f.m.sizes[0])
	} else {
		for at, k := range knapsack.Counts(f.m.sizes, f.counts, n) {
			rest -= k * f.m.sizes[at]
		}
	}
	return rest, min(max(rest-partly, 0), 1)
}

// take takes the CPUs from the chosen caches, beginning with the cache that has
// the fewest free CPUs. Among equal CPUs, it takes the one with the highest
// number, because the system's own work prefers low numbers.
func (f *finder) take(s *selection) mask {
	m := f.m
	t := taker{finder: f, set: m.mask(), left: slices.Clone(f.room), n: f.n}
	order := slices.Clone(s.leaves)
	switch f.by.kind {
	case oneACore:
		t.pass(order, 1, false, func(k, size, had int32) bool { return k == size })
		t.pass(order, 1, false, func(k, size, had int32) bool { return k < size })
		return t.done()
	case wholeCores:
		t.pass(order, f.by.size, true, func(k, size, had int32) bool { return k == size && size == f.by.size })
		return t.done()
	}
	t.pass(order, t.n, false, func(_, _, had int32) bool { return had > 0 })
	clear(f.counts)
	for _, i := range order {
		l := &f.leaves[i]
		for at, size := range m.sizes {
			f.counts[at] += min(l.whole[at], f.gain(t.left, l.domain)/size)
		}
	}
	for at, want := range knapsack.Counts(m.sizes, f.counts, t.n) {
		size := m.sizes[at]
		end := t.n - want*size
		t.pass(order, size, true, func(k, all, _ int32) bool { return k == all && all == size && t.n-size >= end })
	}
	t.pass(order, t.n, false, func(k, size, _ int32) bool { return k < size })
	t.pass(order, t.n, false, func(int32, int32, int32) bool { return true })
	return t.done()
}

// A taker takes CPUs core by core.
type taker struct {
	*finder
	set  mask
	left []int32 // the room that is left in each domain
	n    int32   // number of CPUs that are still to take
}

func (t *taker) done() mask {
	if t.n > 0 {
		return nil
	}
	return t.set
}

// pass takes CPUs from each core for which the function fits returns true, up
// to a maximum (most). If whole is set, it takes all free CPUs of a core or
// none. The arguments of fits are numbers of CPUs of a core: those that are
// free (k), all (size), and those that the claim already has (had).
func (t *taker) pass(order []int32, most int32, whole bool, fits func(k, size, had int32) bool) {
	m := t.m
	slices.SortFunc(order, func(a, b int32) int { return t.smaller(t.left, a, b) })
	for _, i := range order {
		p := &m.domains[t.leaves[i].domain]
		for at := p.last - 1; at >= p.core && t.n > 0; at-- {
			c := m.cores[at]
			had, taken := t.have.count(c.lo, c.hi), t.set.count(c.lo, c.hi)
			k := t.open.count(c.lo, c.hi) - had - taken
			if k == 0 || taken > 0 && t.by.kind == oneACore || !fits(k, c.hi-c.lo, had) {
				continue
			}
			n := min(k, most, t.n, t.gain(t.left, t.leaves[i].domain))
			if whole && n < k {
				continue // there is no room for the whole core
			}
			for cpu := c.hi - 1; cpu >= c.lo && n > 0; cpu-- {
				if t.open.has(cpu) && !t.have.has(cpu) && !t.set.has(cpu) {
					t.set.set(cpu)
					n--
					t.n--
					for up := t.leaves[i].domain; up >= 0; up = m.domains[up].up {
						t.left[up]--
					}
				}
			}
		}
	}
}
