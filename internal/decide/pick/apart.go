package pick

// Separation says that a workload must not share its cores, or its NUMA nodes,
// with workloads of the same Separation. It may share them with all other work.
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
	at := m.maskOf(h.CPUs)
	each := func(lo, hi int32) {
		if at.count(lo, hi) == 0 {
			return
		}
		for i := lo; i < hi; i++ {
			s.marked[h.Apart].set(i)
		}
	}
	if h.Apart == ApartCores {
		for _, c := range m.cores {
			each(c.lo, c.hi)
		}
		return
	}
	for _, p := range m.pools[m.firstPool[NUMA]:m.firstPool[NUMA+1]] {
		each(p.lo, p.hi)
	}
}
