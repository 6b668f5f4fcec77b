package pick

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// An Offer holds the CPUs for a request, and says how they are spread.
type Offer struct {
	// CPUs are the exclusive or shared CPUs. For a pool, they are all open CPUs of
	// the domain.
	CPUs unit.CPUSet
	// Domain is the set of all CPUs of the place in which the workload shares CPUs.
	// Level is the level of this place.
	Domain unit.CPUSet
	Level  cpus.Level
	// Split is the number of owned CPUs that share a core with CPUs outside the
	// offer. Sockets, Nodes and Caches are the numbers of sockets, NUMA nodes and
	// L3 caches over which the CPUs are spread.
	Split, Sockets, Nodes, Caches int
}

// Allocation returns what a workload has when it has accepted the offer for its request.
func (o Offer) Allocation(r cpus.Request) cpus.Allocation {
	return cpus.Allocation{Policy: r.Policy, CPUs: o.CPUs, Domain: o.Domain, CPU: r.CPU, Exclusive: r.Exclusive}
}

// Fit chooses the CPUs for a request. If it finds some, the code is Fits.
func (m *Map) Fit(s Seats, c cpus.Request) (Offer, cpus.Code) { return m.Resize(s, c, unit.CPUSet{}) }

// Resize chooses the CPUs for a workload that has exclusive CPUs, which are open
// in s. If the request is for more, CPUs are added to them. If it is for fewer,
// some of them are dropped.
func (m *Map) Resize(s Seats, c cpus.Request, have unit.CPUSet) (Offer, cpus.Code) {
	if len(m.cpus) > 0 && c.Policy != 0 && (c.Policy == cpus.Pool || c.CPUs > 0) {
		fit := func(from mask) (Offer, bool) { return m.fitShared(s, c, from) }
		if c.Policy == cpus.Exclusive {
			fit = func(from mask) (Offer, bool) { return m.fitOwn(s, c, have, from) }
		}
		if rest := away(m, &s, c.Exclusive); rest != nil {
			if o, ok := fit(rest); ok {
				return o, cpus.Fits
			}
		}
		if o, ok := fit(s.open); ok {
			return o, cpus.Fits
		}
	}
	u := m.Sum(s)
	return Offer{}, cmp.Or(u.Room(&c), cpus.TooFewWhole) // if there is room for the claim, the node has too few whole cores
}

// fitShared chooses the smallest domain with enough room. Among domains of the same
// level it takes the one with the least room, and of equal ones that with the least
// room around it: whole sockets stay free. It uses only CPUs in a mask.
func (m *Map) fitShared(s Seats, c cpus.Request, from mask) (Offer, bool) {
	n := int32(1)
	if c.Policy == cpus.Shared {
		n = int32(min(c.CPUs, unit.MaxCPUs+1))
	}
	best, least, around := int32(-1), unit.MilliCPU(0), unit.MilliCPU(0)
	for l := cpus.L3 + 1; best < 0 && l > c.Within; {
		l--
		for i := m.first[l]; i < m.first[l+1]; i++ {
			slack, sum := m.slack(&s, i)
			lo, hi := m.domains[i].lo, m.domains[i].hi
			has := from.count(lo, hi)
			if has < n || slack < c.CPU || c.Policy == cpus.Pool && has < s.open.count(lo, hi) { // pooled work uses all open CPUs of a domain
				continue
			}
			if best < 0 || cmp.Or(cmp.Compare(slack, least), cmp.Compare(sum, around)) < 0 {
				best, least, around = i, slack, sum
			}
		}
	}
	if best < 0 {
		return Offer{}, false
	}
	p := &m.domains[best]
	at := make([]int32, 0, p.hi-p.lo)
	for i := p.lo; i < p.hi; i++ {
		if from.has(i) {
			at = append(at, i)
		}
	}
	if c.Policy == cpus.Shared {
		slices.SortStableFunc(at, func(a, b int32) int { return cmp.Compare(s.load[a], s.load[b]) })
		at = at[:n]
	}
	set := m.mask()
	for _, i := range at {
		set.set(i)
	}
	o := m.judge(set)
	o.Domain = m.setOf(best)
	o.Level = m.LevelOf(o.Domain)
	return o, true
}

// judge describes a set of CPUs.
func (m *Map) judge(set mask) Offer {
	o := Offer{CPUs: m.cpusOf(set), Level: cpus.L3}
	var on [cpus.Levels]int
	for l := cpus.Socket; l < cpus.Levels; l++ {
		for i := m.first[l]; i < m.first[l+1]; i++ {
			p := &m.domains[i]
			if set.count(p.lo, p.hi) == 0 {
				continue
			}
			on[l]++
			if l < cpus.L3 {
				continue
			}
			for _, c := range m.cores[p.core:p.last] {
				if n := set.count(c.lo, c.hi); n < c.hi-c.lo {
					o.Split += int(n)
				}
			}
		}
	}
	o.Sockets, o.Nodes, o.Caches = on[cpus.Socket], on[cpus.NUMA], on[cpus.L3]
	return o
}

// measuresOf lists the measures to try for a claim, the preferred one first.
func measuresOf(m *Map, c *cpus.Request) []measure {
	var all []measure
	switch c.Bind {
	case cpus.OnlyWhole, cpus.PreferWhole:
		for _, size := range m.sizes {
			if c.CPUs%int(size) == 0 {
				all = append(all, measure{wholeCores, size})
			}
		}
	case cpus.OnlySpread, cpus.PreferSpread:
		all = append(all, measure{kind: oneACore})
	}
	if c.Bind != cpus.OnlyWhole && c.Bind != cpus.OnlySpread {
		all = append(all, measure{kind: anyCPU})
	}
	return all
}

// fitOwn chooses own CPUs in the given mask. It keeps the CPUs that the
// workload has, also those outside this mask. If one kind of core is enough,
// all CPUs are of this kind. The fastest kind is tried first.
func (m *Map) fitOwn(s Seats, c cpus.Request, has unit.CPUSet, from mask) (Offer, bool) {
	have := m.maskOf(has)
	for i := range have {
		have[i] &= s.open[i]
	}
	n, had := int32(min(c.CPUs, unit.MaxCPUs+1)), have.count(0, int32(len(m.cpus)))
	switch {
	case n == had:
		return m.judge(have), true
	case n < had:
		for i := range have {
			have[i] &= from[i]
		}
		return shrink(m, s, c, have)
	}
	measures := measuresOf(m, &c)
	if had > 0 { // the CPUs that it has need not be whole cores
		measures = []measure{{kind: anyCPU}}
		from = slices.Clone(from)
		for i := range have {
			from[i] |= have[i]
		}
	}
	for _, open := range masksOf(m, from, have) {
		for _, by := range measures {
			f := finder{m: m, open: open, have: have, by: by, room: m.room(&s, open, by), n: n - had, within: c.Within}
			if had > 0 {
				f.room = roomFor(m, f.room, have)
			}
			set := f.find(c.Fewest)
			if set == nil {
				continue
			}
			for i := range have {
				set[i] |= have[i]
			}
			if o := m.judge(set); c.Bind != cpus.OnlyWhole || o.Split == 0 {
				return o, true
			}
		}
	}
	return Offer{}, false
}

// masksOf lists the sets of open CPUs from which to choose: first single kinds
// of cores, and last all. A kind must contain all present CPUs (have).
func masksOf(m *Map, open, have mask) []mask {
	var all []mask
	for _, kind := range m.kinds {
		part, fits := m.mask(), true
		for i := range part {
			part[i] = open[i] & kind[i]
			fits = fits && have[i]&^kind[i] == 0
		}
		if fits {
			all = append(all, part)
		}
	}
	return append(all, open)
}

// shrink chooses the best c.CPUs of the CPUs that a workload has.
func shrink(m *Map, s Seats, c cpus.Request, have mask) (Offer, bool) {
	s.open, s.soft, s.least = have, make([]unit.MilliCPU, len(m.domains)), make([]int32, len(m.domains))
	for _, by := range measuresOf(m, &c) {
		f := finder{m: m, open: have, have: m.mask(), by: by, room: m.room(&s, have, by), n: int32(c.CPUs), within: cpus.Machine}
		if set := f.find(false); set != nil {
			return m.judge(set), true
		}
	}
	return Offer{}, false
}

// roomFor subtracts the CPUs that the claim already has (have) from the room of
// the domains.
func roomFor(m *Map, room []int32, have mask) []int32 {
	for i, p := range m.domains {
		room[i] -= have.count(p.lo, p.hi)
		if p.up >= 0 {
			room[i] = min(room[i], room[p.up])
		}
		room[i] = max(room[i], 0)
	}
	return room
}

// Judge describes own CPUs of a workload that another program chose.
func (m *Map) Judge(set unit.CPUSet) Offer { return m.judge(m.maskOf(set)) }
