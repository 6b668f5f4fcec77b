package pick

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A Seats says how the CPUs of a machine are used: which CPUs are open, and how
// much load shared work puts on the domains. It belongs to a Map. Copies share
// memory, so a Seats must not be changed.
type Seats struct {
	open mask
	// soft[p] is the load of work whose home is the domain p or a domain below it.
	// least[p] is the number of CPUs of p that must stay open, whatever this
	// load is: 1 if there is such work.
	soft  []unit.MilliCPU
	least []int32
	// load is the load of seated work, by the position of the CPU.
	load []unit.MilliCPU
	keep int32 // number of CPUs that stay open, whatever work there is
	// marked[a] are the CPUs of cores or nodes used by work with the exclusive policy a.
	marked [cpus.ExclusivePolicies]mask
}

// Seats returns how the CPUs are used if the workloads have these holds. No
// work gets the CPUs in off. At least keep CPUs must stay open.
func (m *Map) Seats(off unit.CPUSet, keep int, holds []cpus.Allocation) Seats {
	s := Seats{
		open: m.mask(), soft: make([]unit.MilliCPU, len(m.domains)), least: make([]int32, len(m.domains)),
		load: make([]unit.MilliCPU, len(m.cpus)),
	}
	for i := range m.cpus {
		s.open.set(int32(i))
	}
	m.close(&s, off)
	for i := range holds {
		if h := &holds[i]; h.Policy == cpus.Exclusive {
			m.close(&s, h.CPUs)
		}
	}
	for i := range holds {
		h := &holds[i]
		if h.Policy == cpus.Shared || h.Policy == cpus.Pool {
			m.share(&s, h)
		}
		m.mark(&s, h)
	}
	if s.keep = int32(keep); len(s.least) > 0 {
		s.least[0] = max(s.least[0], s.keep)
	}
	return s
}

// With returns s with one more hold.
func (m *Map) With(s Seats, h cpus.Allocation) Seats {
	s.open = slices.Clone(s.open)
	switch h.Policy {
	case cpus.Exclusive:
		m.close(&s, h.CPUs)
	case cpus.Shared, cpus.Pool:
		s.soft, s.least, s.load = slices.Clone(s.soft), slices.Clone(s.least), slices.Clone(s.load)
		m.share(&s, &h)
	}
	for i := range s.marked {
		s.marked[i] = slices.Clone(s.marked[i])
	}
	m.mark(&s, &h)
	return s
}

// Reopen returns s with a set of CPUs open again, because no workload owns them
// any more.
func (m *Map) Reopen(s Seats, set unit.CPUSet) Seats {
	s.open = slices.Clone(s.open)
	for c := range set.All() {
		if i := m.position(c); i >= 0 {
			s.open.set(i)
		}
	}
	return s
}

// Open returns the CPUs that no workload owns.
func (m *Map) Open(s Seats) unit.CPUSet { return m.cpusOf(s.open) }

func (m *Map) close(s *Seats, set unit.CPUSet) {
	for c := range set.All() {
		if i := m.position(c); i >= 0 {
			s.open.clear(i)
		}
	}
}

// share adds the load of a hold to its home. Seats keep no more CPUs open than
// their work requests: the scheduler counts requests only, so more would be CPUs
// that a pod takes from others without a cost.
func (m *Map) share(s *Seats, h *cpus.Allocation) {
	if h.Policy == cpus.Shared {
		n := h.CPUs.Len()
		for c := range h.CPUs.All() {
			if i := m.position(c); i >= 0 {
				s.load[i] += h.CPU / unit.MilliCPU(n)
			}
		}
	}
	for p := m.smallestDomain(h.Domain); p >= 0; p = m.domains[p].up {
		s.soft[p] += h.CPU
		s.least[p] = max(s.least[p], 1)
	}
}

// slack returns how much more load the domain p can take: the smallest amount
// that is left in p and in the domains above it. sum is the sum of these amounts.
func (m *Map) slack(s *Seats, p int32) (least, sum unit.MilliCPU) {
	least = unit.MilliCPU(1 << 40)
	for ; p >= 0; p = m.domains[p].up {
		left := unit.CPUs(int(s.open.count(m.domains[p].lo, m.domains[p].hi))) - s.soft[p]
		least, sum = min(least, left), sum+left
	}
	return least, sum
}

// A measure says which CPUs of a core count for a claim, for example all of
// them, or only those of whole cores.
type measure struct {
	kind countKind
	size int32 // of a core, for wholeCores
}

type countKind uint8

const (
	anyCPU     countKind = iota
	oneACore             // one CPU of each core
	wholeCores           // the CPUs of wholly open cores of one size
)

// count returns the number of open CPUs of an L3 cache that a measure counts.
func (m *Map) count(open mask, p *domain, by measure) int32 {
	if by.kind == anyCPU {
		return open.count(p.lo, p.hi)
	}
	n := int32(0)
	for _, c := range m.cores[p.core:p.last] {
		k := open.count(c.lo, c.hi)
		switch {
		case by.kind == oneACore && k > 0:
			n++
		case by.kind == wholeCores && k == by.size && c.hi-c.lo == k:
			n += k
		}
	}
	return n
}

// room returns, for each domain, how many CPUs one claim may take from it so that shared
// work keeps what it requests. Since the domains are nested, these numbers are exact: a
// claim fits if and only if it takes from no domain more than its room.
func (m *Map) room(s *Seats, open mask, by measure) []int32 {
	room := make([]int32, len(m.domains))
	for i := m.first[cpus.L3]; i < m.first[cpus.L3+1]; i++ {
		room[i] = m.count(open, &m.domains[i], by)
	}
	m.limitRoom(s, m.openOf(s), room, by)
	return room
}

// openOf returns how many CPUs of each domain are open.
func (m *Map) openOf(s *Seats) []int32 {
	open := make([]int32, len(m.domains))
	for i := len(m.domains) - 1; i >= 0; i-- {
		p := &m.domains[i]
		if p.after == 0 {
			open[i] = s.open.count(p.lo, p.hi)
		}
		if p.up >= 0 {
			open[p.up] += open[i]
		}
	}
	return open
}

// rooms joins the results of room for all measures of the map, but reads the
// cores only once. It counts only CPUs in the given mask.
func (m *Map) rooms(s *Seats, from mask) []int32 {
	n := int32(len(m.domains))
	rooms := make([]int32, int32(len(m.measures))*n)
	for i := m.first[cpus.L3]; i < m.first[cpus.L3+1]; i++ {
		p := &m.domains[i]
		for _, c := range m.cores[p.core:p.last] {
			k := from.count(c.lo, c.hi)
			if k == 0 {
				continue
			}
			rooms[i] += k
			rooms[n+i]++
			if k == c.hi-c.lo {
				rooms[int32(2+m.sizeAt(k))*n+i] += k
			}
		}
	}
	open := m.openOf(s)
	for i, by := range m.measures {
		m.limitRoom(s, open, rooms[int32(i)*n:int32(i+1)*n], by)
	}
	return rooms
}

// limitRoom limits the room of L3 caches, and computes the room of the domains
// above them. The shared work of each domain keeps its CPUs.
func (m *Map) limitRoom(s *Seats, open, room []int32, by measure) {
	for i := len(m.domains) - 1; i >= 0; i-- {
		n := min(room[i], open[i]-s.least[i])
		if s.soft[i] > 0 {
			n = min(n, open[i]-int32(min((s.soft[i]+999)/unit.CPUs(1), unit.MaxCPUs)))
		}
		n = max(n, 0)
		if by.size > 1 {
			n = n / by.size * by.size
		}
		room[i] = n
		if up := m.domains[i].up; up >= 0 {
			room[up] += n
		}
	}
	for i := range m.domains {
		if up := m.domains[i].up; up >= 0 {
			room[i] = min(room[i], room[up])
		}
	}
}

// Reseat returns the CPUs that seated or pooled work gets now in its home.
// Pooled work gets all open CPUs. Seated work gets n of them, and keeps its
// seats as far as possible. A seat that moves keeps away from work with the same
// exclusive policy, as far as possible. moved says whether a seat had to move. If the home
// has no open CPU, the set is empty.
func (m *Map) Reseat(s Seats, h cpus.Allocation, n int) (set unit.CPUSet, moved bool) {
	home := &m.domains[m.smallestDomain(h.Domain)]
	b := m.mask()
	var at []int32
	for i := home.lo; i < home.hi; i++ {
		if s.open.has(i) {
			at = append(at, i)
		}
	}
	if h.Policy == cpus.Shared {
		rest := away(m, &s, h.Exclusive)
		rank := func(i int32) int {
			switch {
			case h.CPUs.Has(m.cpus[i].ID):
				return 0
			case rest == nil || rest.has(i):
				return 1
			}
			return 2
		}
		slices.SortStableFunc(at, func(a, b int32) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(s.load[a], s.load[b]))
		})
		at = at[:min(max(n, 0), len(at))]
	}
	for _, i := range at {
		b.set(i)
	}
	set = m.cpusOf(b)
	return set, h.Policy == cpus.Shared && !set.Contains(h.CPUs) && set.Len() >= h.CPUs.Len()
}

// LevelOf returns the level of the smallest domain that contains a set. If domains
// of several levels have the same CPUs, it is the lowest of these levels, so that
// a place has one name: an L3 cache is an L3 cache, also if it is the whole node.
func (m *Map) LevelOf(set unit.CPUSet) cpus.Level {
	at := m.smallestDomain(set)
	for p := m.domains[at]; p.after == p.child+1; p = m.domains[at] {
		at = p.child
	}
	return m.levelOf(at)
}
