// Package pick chooses which CPUs a demand gets on a topology. A choice is a
// value without effect: callers compare it, print it, and put it into a want.
package pick

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// BestEffort chooses n of the allowed CPUs for best-effort work: whole cores
// first, so that as few cores as possible are shared between best-effort and
// other work; the cores are spread evenly over the L3 caches, so that no cache
// carries all of the disturbance. Cores with a CPU in avoid (where
// latency-sensitive work is bound) come last. A demand larger than the
// allowed CPUs gets all of them; n ≤ 0 gets none.
func BestEffort(t node.Topology, allowed, avoid unit.CPUSet, n int) unit.CPUSet {
	var chosen unit.CPUSet
	for _, c := range order(cores(t, allowed, avoid)) {
		for cpu := range c.cpus.All() {
			if chosen.Len() >= n {
				return chosen
			}
			chosen = chosen.With(cpu)
		}
	}
	return chosen
}

// A core is the allowed CPUs of one physical core.
type core struct {
	l3      node.CacheID
	cpus    unit.CPUSet
	partial bool // not all of the core's CPUs are allowed
	avoided bool
	turn    int // its place among the equals of its L3
}

func cores(t node.Topology, allowed, avoid unit.CPUSet) []core {
	byID := map[node.CoreID]*core{}
	var ids []node.CoreID
	for _, c := range t.CPUs {
		if byID[c.Core] == nil {
			byID[c.Core] = &core{l3: c.L3}
			ids = append(ids, c.Core)
		}
		it := byID[c.Core]
		it.avoided = it.avoided || avoid.Has(c.ID)
		if allowed.Has(c.ID) {
			it.cpus = it.cpus.With(c.ID)
		} else {
			it.partial = true
		}
	}
	var all []core
	for _, id := range ids {
		if !byID[id].cpus.Empty() {
			all = append(all, *byID[id])
		}
	}
	return all
}

// order puts the best core first. Cores of equal worth take turns over the L3
// caches.
func order(all []core) []core {
	type kind struct {
		l3               node.CacheID
		avoided, partial bool
	}
	turns := map[kind]int{}
	for i := range all {
		k := kind{all[i].l3, all[i].avoided, all[i].partial}
		all[i].turn = turns[k]
		turns[k]++
	}
	slices.SortStableFunc(all, func(a, b core) int {
		return cmp.Or(compareBool(a.avoided, b.avoided), compareBool(a.partial, b.partial),
			cmp.Compare(a.turn, b.turn), cmp.Compare(a.l3, b.l3))
	})
	return all
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
