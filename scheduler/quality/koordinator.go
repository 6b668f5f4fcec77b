package main

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// koordinator places claims like Koordinator's scheduler with its default bind
// policy FullPCPUs, by its documentation. It takes the first of these groups
// that suffices: wholly free cores of one NUMA node, of one socket, of several
// sockets, and then single CPUs. Of single CPUs, it takes one CPU of each core
// before any second CPU. It does not know L3 caches. With LeastAllocated it
// begins with the NUMA nodes that have the most free CPUs. With MostAllocated
// it begins with those that have the fewest.
type koordinator struct {
	hosts  []*host
	packed bool
}

func (*koordinator) begin(int, unit.CPUSet) error { return nil }
func (*koordinator) leave(int, *claim)            {}

func (k *koordinator) room(at int, c *claim) bool { return k.hosts[at].spare() >= c.request }

// worth scores a node by requested amounts, as Koordinator's plugin does.
func (k *koordinator) worth(at int, c *claim) float64 {
	if k.packed {
		return pack(k.hosts[at], c)
	}
	return spread(k.hosts[at], c)
}

func (k *koordinator) take(at int, c *claim) (unit.CPUSet, bool) {
	h := k.hosts[at]
	if c.cpus == 0 {
		return unit.CPUSet{}, true
	}
	t := taker{host: h, left: c.cpus}
	for _, l := range []level{numaLevel, socketLevel} {
		for _, g := range order(h, l, k.packed) {
			if h.whole[l][g] >= c.cpus {
				t.takeFromCores(h.groups[l][g])
				return t.set, t.left == 0
			}
		}
	}
	for _, g := range order(h, socketLevel, false) { // whole sockets, the socket with the most free CPUs first
		t.takeCores(h.groups[socketLevel][g])
	}
	for _, g := range order(h, socketLevel, true) {
		t.takeSingles(h.groups[socketLevel][g])
	}
	for c := range h.cpus {
		t.add(c)
	}
	return t.set, t.left == 0
}

// order sorts the groups of a level by their free CPUs.
func order(h *host, l level, tightest bool) []int {
	all := make([]int, len(h.open[l]))
	for g := range all {
		all[g] = g
	}
	slices.SortStableFunc(all, func(a, b int) int {
		if tightest {
			return cmp.Compare(h.open[l][a], h.open[l][b])
		}
		return cmp.Compare(h.open[l][b], h.open[l][a])
	})
	return all
}

// takeFromCores takes CPUs of wholly free cores. It takes a part of a core only
// at the end, if the claim needs fewer CPUs than the core has.
func (t *taker) takeFromCores(of []int) {
	t.takeCores(of)
	for _, c := range of {
		if t.left > 0 && t.wholeCore(c) && !t.set.Has(unit.CPU(c)) {
			for _, thread := range t.frame.cores[t.coreOf[c]] {
				t.add(thread)
			}
		}
	}
}

// takeSingles takes one free CPU of each core of which the claim has no CPU yet.
func (t *taker) takeSingles(of []int) {
	for _, c := range of {
		taken := false
		for _, thread := range t.frame.cores[t.coreOf[c]] {
			taken = taken || t.set.Has(unit.CPU(thread))
		}
		if !taken {
			t.add(c)
		}
	}
}
