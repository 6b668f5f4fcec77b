package pick

import "slices"

// Separation says that a workload does not share its cores, or its NUMA nodes,
// with workloads of the same Separation, as long as there is another place. It
// shares them with all other work (preferredCPUExclusivePolicy of Koordinator).
type Separation uint8

// The values of Separation.
const (
	Anywhere Separation = iota
	ApartCores
	ApartNodes
	aparts
)

// mark records the cores or NUMA nodes of a workload with a Separation.
func (m *Map) mark(s *Seats, h *Hold) {
	if h.Apart == Anywhere {
		return
	}
	if s.marked[h.Apart] == nil {
		s.marked[h.Apart] = m.mask()
	}
	used, marked := h.CPUs, s.marked[h.Apart]
	if h.Grade == Pooled { // it also uses the CPUs that others give up
		used = used.Union(h.Home)
	}
	for c := range used.All() {
		if i := m.position(c); i >= 0 && !marked.has(i) {
			span := around(m, i, h.Apart)
			for j := span.lo; j < span.hi; j++ {
				marked.set(j)
			}
		}
	}
}

// around returns the core or the NUMA node of a position.
func around(m *Map, i int32, a Separation) span {
	if a == ApartCores {
		at, _ := slices.BinarySearchFunc(m.cores, i, func(c span, i int32) int { return int(c.hi - 1 - i) })
		return m.cores[at]
	}
	at := m.firstPool[NUMA]
	for m.pools[at].hi <= i {
		at++
	}
	return span{m.pools[at].lo, m.pools[at].hi}
}

// away returns the open CPUs outside the cores, or NUMA nodes, of work with the
// Separation a. If all open CPUs are outside, it returns nil.
func away(m *Map, s *Seats, a Separation) mask {
	if a == Anywhere || s.marked[a] == nil {
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
