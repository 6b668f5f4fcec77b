package pick

import (
	"slices"

	"tenon.sh/tenon/internal/model/cpus"
)

// mark records the cores or NUMA nodes of a workload with an exclusive policy.
func (m *Map) mark(s *Seats, h *cpus.Allocation) {
	if h.Exclusive == cpus.NotExclusive {
		return
	}
	if s.marked[h.Exclusive] == nil {
		s.marked[h.Exclusive] = m.mask()
	}
	used, marked := h.CPUs, s.marked[h.Exclusive]
	if h.Policy == cpus.Pool { // it also uses the CPUs that others give up
		used = used.Union(h.Domain)
	}
	for c := range used.All() {
		if i := m.position(c); i >= 0 && !marked.has(i) {
			span := around(m, i, h.Exclusive)
			for j := span.lo; j < span.hi; j++ {
				marked.set(j)
			}
		}
	}
}

// around returns the core or the NUMA node of a position.
func around(m *Map, i int32, a cpus.ExclusivePolicy) span {
	if a == cpus.PCPULevel {
		at, _ := slices.BinarySearchFunc(m.cores, i, func(c span, i int32) int { return int(c.hi - 1 - i) })
		return m.cores[at]
	}
	at := m.first[cpus.NUMA]
	for m.domains[at].hi <= i {
		at++
	}
	return span{m.domains[at].lo, m.domains[at].hi}
}

// away returns the open CPUs outside the cores, or NUMA nodes, of work with the
// exclusive policy a. If all open CPUs are outside, it returns nil.
func away(m *Map, s *Seats, a cpus.ExclusivePolicy) mask {
	if a == cpus.NotExclusive || s.marked[a] == nil {
		return nil
	}
	rest, shares := m.mask(), uint64(0)
	for i, marked := range s.marked[a] {
		rest[i] = s.open[i] &^ marked
		shares |= s.open[i] & marked
	}
	if shares == 0 {
		return nil
	}
	return rest
}
