package pick

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// Bind says how a claim for own CPUs treats the threads of cores.
type Bind uint8

// The binds.
const (
	// AnyCores prefers few NUMA nodes, then few L3 caches, then whole cores.
	AnyCores Bind = iota
	// PreferWhole takes whole cores wherever they are, or else is AnyCores.
	PreferWhole
	// OnlyWhole takes whole cores of one size or nothing.
	OnlyWhole
	// PreferSpread takes one CPU of each core, or else is AnyCores.
	PreferSpread
	// OnlySpread takes one CPU of each core or nothing.
	OnlySpread
)

// A Claim is the demand of one workload for CPUs.
type Claim struct {
	Grade Grade
	// CPUs is the number of own CPUs or of seats.
	CPUs int
	// Request is the load of seated or pooled work.
	Request unit.MilliCPU
	Bind    Bind
	// Within is the level of the pool that must contain all CPUs; Machine: any.
	Within Level
	// Fewest: the CPUs must be on no more NUMA nodes than the empty machine
	// would need.
	Fewest bool
	Apart  Apart
	// Have are the open CPUs that the workload has now. It keeps them: it grows
	// and shrinks in place.
	Have unit.CPUSet
}

// An Offer is the answer to a Claim, with its defects.
type Offer struct {
	// CPUs are the own CPUs or the seats, or all open CPUs of the home.
	CPUs unit.CPUSet
	// Home are all CPUs of the pool that seated or pooled work shares, and Level
	// is its level.
	Home  unit.CPUSet
	Level Level
	// Split is the number of own CPUs that share a core with CPUs outside the
	// offer. Sockets, Nodes and Caches are the numbers of sockets, NUMA nodes
	// and L3 caches over which the CPUs are spread.
	Split, Sockets, Nodes, Caches int
}

// Hold returns what the workload of a claim holds once it has the offer.
func (c *Claim) Hold(o Offer) Hold {
	return Hold{Grade: c.Grade, CPUs: o.CPUs, Home: o.Home, Request: c.Request, Apart: c.Apart}
}

// Fit chooses the CPUs for a claim.
func (m *Map) Fit(s Seats, c Claim) (Offer, Reason) {
	u := m.Sum(s)
	if why := u.Room(&c); why != Fits {
		return Offer{}, why
	}
	if c.Grade != Own {
		return m.fitShared(s, c), Fits
	}
	return m.fitOwn(s, c), Fits
}

// fitShared chooses the smallest pool with room; of equal ones the tightest.
func (m *Map) fitShared(s Seats, c Claim) Offer {
	n := int32(1)
	if c.Grade == Seated {
		n = int32(c.CPUs)
	}
	best, least := int32(-1), unit.MilliCPU(0)
	for l := L3; best < 0; l-- {
		for i := m.from[l]; i < m.from[l+1]; i++ {
			slack := m.slack(&s, i)
			if s.open.count(m.pools[i].lo, m.pools[i].hi) < n || slack < c.Request {
				continue
			}
			if best < 0 || slack < least {
				best, least = i, slack
			}
		}
	}
	p := &m.pools[best]
	var at []int32
	for i := p.lo; i < p.hi; i++ {
		if s.open.has(i) {
			at = append(at, i)
		}
	}
	if c.Grade == Seated {
		slices.SortStableFunc(at, func(a, b int32) int { return cmp.Compare(s.load[a], s.load[b]) })
		at = at[:n]
	}
	set := m.mask()
	for _, i := range at {
		set.set(i)
	}
	o := m.judge(set)
	o.Home, o.Level = m.setOf(best), m.levelOf(best)
	return o
}

// judge describes a set of CPUs.
func (m *Map) judge(set mask) Offer {
	o := Offer{CPUs: m.cpusOf(set), Level: L3}
	for l, n := range map[Level]*int{Socket: &o.Sockets, NUMA: &o.Nodes, L3: &o.Caches} {
		for i := m.from[l]; i < m.from[l+1]; i++ {
			if set.count(m.pools[i].lo, m.pools[i].hi) > 0 {
				*n++
			}
		}
	}
	for _, c := range m.cores {
		if n := set.count(c.lo, c.hi); n < c.hi-c.lo {
			o.Split += int(n)
		}
	}
	return o
}

// measureOf returns how the CPUs of a claim are counted.
func (m *Map) measureOf(s *Seats, c *Claim) measure {
	tries := []measure{{kind: anyCPU}}
	switch c.Bind {
	case OnlyWhole, PreferWhole:
		for i := len(m.sizes) - 1; i >= 0; i-- {
			if c.CPUs%int(m.sizes[i]) == 0 {
				tries = slices.Insert(tries, 0, measure{wholeCores, m.sizes[i]})
			}
		}
	case OnlySpread, PreferSpread:
		tries = slices.Insert(tries, 0, measure{kind: oneACore})
	}
	for _, by := range tries {
		room := m.room(s, s.open, by)
		if slices.Max(room[m.from[c.Within]:m.from[c.Within+1]]) < int32(c.CPUs) {
			continue
		}
		if !c.Fewest || m.bestNodes(room)[m.fewestNodes(int32(c.CPUs))] >= int32(c.CPUs) {
			return by
		}
	}
	return measure{kind: anyCPU}
}

// fitOwn takes CPUs from the smallest pool that has enough of them.
func (m *Map) fitOwn(s Seats, c Claim) Offer {
	by := m.measureOf(&s, &c)
	room := m.room(&s, s.open, by)
	n := int32(c.CPUs)
	set := m.mask()
	for l := L3; ; l-- {
		best := int32(-1)
		for i := m.from[l]; i < m.from[l+1]; i++ {
			if room[i] >= n && (best < 0 || room[i] <= room[best]) {
				best = i
			}
		}
		if best >= 0 {
			m.takeFrom(best, n, room, s.open, by, set)
			return m.judge(set)
		}
	}
}

// takeFrom takes n CPUs from a pool: as many as there are from the pools below
// it with most room first. It returns the number that it took.
func (m *Map) takeFrom(at, n int32, room []int32, open mask, by measure, set mask) int32 {
	p := &m.pools[at]
	n = min(n, room[at])
	if p.after == 0 {
		m.takeCores(p, n, open, by, set)
		return n
	}
	order := make([]int32, 0, p.after-p.child)
	for i := p.child; i < p.after; i++ {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(room[b], room[a]) })
	left := n
	for _, i := range order {
		left -= m.takeFrom(i, left, room, open, by, set)
	}
	return n - left
}

// takeCores takes n CPUs from an L3 cache, whole cores first.
func (m *Map) takeCores(p *pool, n int32, open mask, by measure, set mask) {
	pass := func(most int32, fits func(k, size int32) bool) {
		for i := p.last - 1; i >= p.core && n > 0; i-- {
			c := m.cores[i]
			k := open.count(c.lo, c.hi) - set.count(c.lo, c.hi)
			if k == 0 || by.kind == oneACore && set.count(c.lo, c.hi) > 0 || !fits(k, c.hi-c.lo) {
				continue
			}
			for at, taken := c.hi-1, int32(0); at >= c.lo && n > 0 && taken < most; at-- {
				if open.has(at) && !set.has(at) {
					set.set(at)
					n--
					taken++
				}
			}
		}
	}
	switch by.kind {
	case oneACore:
		pass(1, func(k, size int32) bool { return k == size })
		pass(1, func(int32, int32) bool { return true })
	case wholeCores:
		pass(by.size, func(k, size int32) bool { return k == size && size == by.size })
	default:
		for _, want := range m.sizes {
			pass(want, func(k, size int32) bool { return k == size && size == want && n >= size })
		}
		pass(n, func(k, size int32) bool { return k < size })
		pass(n, func(int32, int32) bool { return true })
	}
}
