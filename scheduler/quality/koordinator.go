package main

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// koordinator places as Koordinator's scheduler does by its documentation, with
// the bind policy FullPCPUs, which is its default: the CPUs of a NUMA node whose
// wholly free cores suffice, else those of such a socket, else wholly free cores
// of whole sockets, and then single CPUs, one of each core first. It knows no L3
// cache. NUMA nodes with most free CPUs go first if nodes do (LeastAllocated),
// and those with fewest if the fullest node does (MostAllocated).
type koordinator struct {
	hosts  []*host
	packed bool
}

func (*koordinator) begin(int, unit.CPUSet) error { return nil }
func (*koordinator) leave(int, *claim)            {}

func (k *koordinator) room(at int, c *claim) bool { return k.hosts[at].spare() >= c.request }

// worth is the score of the amounts: that of Koordinator's plugin is the same.
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
				t.fromCores(h.groups[l][g])
				return t.set, t.left == 0
			}
		}
	}
	for _, g := range order(h, socketLevel, false) { // whole sockets, most free first
		t.cores(h.groups[socketLevel][g])
	}
	for _, g := range order(h, socketLevel, true) {
		t.singles(h.groups[socketLevel][g])
	}
	for c := range h.cpus {
		t.add(c)
	}
	return t.set, t.left == 0
}

// order sorts the groups of a level by free CPUs.
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

// fromCores takes wholly free cores, and of the last one what is still wanted.
func (t *taker) fromCores(of []int) {
	t.cores(of)
	for _, c := range of {
		if t.left > 0 && t.wholeCore(c) && !t.set.Has(unit.CPU(c)) {
			for _, thread := range t.frame.cores[t.coreOf[c]] {
				t.add(thread)
			}
		}
	}
}

// singles takes one free CPU of each core of which it has none.
func (t *taker) singles(of []int) {
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
