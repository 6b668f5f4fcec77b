package pick

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// Bind says how a claim for its own CPUs treats the hardware threads of a core.
type Bind uint8

// The values of Bind.
const (
	// AnyCores prefers few NUMA nodes, then few L3 caches, then whole cores.
	AnyCores Bind = iota
	// PreferWhole takes whole cores wherever they are. If there are not enough,
	// it has the effect of AnyCores.
	PreferWhole
	// OnlyWhole takes whole cores of one size, or nothing.
	OnlyWhole
	// PreferSpread takes one CPU of each core. If there are not enough cores,
	// it has the effect of AnyCores.
	PreferSpread
	// OnlySpread takes one CPU of each core, or nothing.
	OnlySpread
)

// A Claim says which CPUs one workload demands.
type Claim struct {
	Grade Grade
	// CPUs is the number of CPUs to own, or the number of seats.
	CPUs int
	// Request is the amount of CPU that seated or pooled work requests.
	Request unit.MilliCPU
	Bind    Bind
	// Within is a level. One pool of this level must contain all CPUs. The
	// level Machine sets no bound.
	Within Level
	// Fewest says that the CPUs must not be on more NUMA nodes than they would
	// need on an empty machine.
	Fewest bool
	// Apart is a preference. If no place meets it, it has no effect.
	Apart Separation
	// Have are the open CPUs that the workload has now. If the claim grows,
	// CPUs are added to them. If it shrinks, some of them are dropped.
	Have unit.CPUSet
}

// An Offer holds the CPUs for a Claim, and says how they are spread.
type Offer struct {
	// CPUs are the CPUs that the workload owns, or its seats. For pooled work,
	// they are all open CPUs of the home.
	CPUs unit.CPUSet
	// Home is the set of all CPUs of the pool that seated or pooled work
	// shares. Level is the level of this pool.
	Home  unit.CPUSet
	Level Level
	// Split is the number of owned CPUs that share a core with CPUs outside the
	// offer. Sockets, Nodes and Caches are the numbers of sockets, NUMA nodes and
	// L3 caches over which the CPUs are spread.
	Split, Sockets, Nodes, Caches int
}

// Hold returns what the workload of a claim holds when it has accepted the offer.
func (c *Claim) Hold(o Offer) Hold {
	return Hold{Grade: c.Grade, CPUs: o.CPUs, Home: o.Home, Request: c.Request, Apart: c.Apart}
}

// Fit chooses the CPUs for a claim. If it finds some, the reason is Fits.
func (m *Map) Fit(s Seats, c Claim) (Offer, Reason) {
	if len(m.cpus) > 0 && c.Grade != 0 && (c.Grade == Pooled || c.CPUs > 0) {
		fit := m.fitShared
		if c.Grade == Own {
			fit = m.fitOwn
		}
		if rest := away(m, &s, c.Apart); rest != nil {
			if o, ok := fit(s, c, rest); ok {
				return o, Fits
			}
		}
		if o, ok := fit(s, c, s.open); ok {
			return o, Fits
		}
	}
	u := m.Sum(s)
	return Offer{}, cmp.Or(u.Room(&c), TooFewWhole) // if there is room for the claim, the node has too few whole cores
}

// fitShared chooses the smallest pool with enough room. Among pools of the same
// level it takes the one with the least room, and of equal ones that with the least
// room around it: whole sockets stay free. It uses only CPUs in a mask.
func (m *Map) fitShared(s Seats, c Claim, from mask) (Offer, bool) {
	n := int32(1)
	if c.Grade == Seated {
		n = int32(min(c.CPUs, unit.MaxCPUs+1))
	}
	best, least, around := int32(-1), unit.MilliCPU(0), unit.MilliCPU(0)
	for l := L3 + 1; best < 0 && l > c.Within; {
		l--
		for i := m.firstPool[l]; i < m.firstPool[l+1]; i++ {
			slack, sum := m.slack(&s, i)
			lo, hi := m.pools[i].lo, m.pools[i].hi
			has := from.count(lo, hi)
			if has < n || slack < c.Request || c.Grade == Pooled && has < s.open.count(lo, hi) { // pooled work uses all open CPUs of a pool
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
	p := &m.pools[best]
	at := make([]int32, 0, p.hi-p.lo)
	for i := p.lo; i < p.hi; i++ {
		if from.has(i) {
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
	o.Home = m.setOf(best)
	o.Level = m.LevelOf(o.Home)
	return o, true
}

// judge describes a set of CPUs.
func (m *Map) judge(set mask) Offer {
	o := Offer{CPUs: m.cpusOf(set), Level: L3}
	var on [levels]int
	for l := Socket; l < levels; l++ {
		for i := m.firstPool[l]; i < m.firstPool[l+1]; i++ {
			p := &m.pools[i]
			if set.count(p.lo, p.hi) == 0 {
				continue
			}
			on[l]++
			if l < L3 {
				continue
			}
			for _, c := range m.cores[p.core:p.last] {
				if n := set.count(c.lo, c.hi); n < c.hi-c.lo {
					o.Split += int(n)
				}
			}
		}
	}
	o.Sockets, o.Nodes, o.Caches = on[Socket], on[NUMA], on[L3]
	return o
}

// measuresOf lists the measures to try for a claim, the preferred one first.
func measuresOf(m *Map, c *Claim) []measure {
	var all []measure
	switch c.Bind {
	case OnlyWhole, PreferWhole:
		for _, size := range m.sizes {
			if c.CPUs%int(size) == 0 {
				all = append(all, measure{wholeCores, size})
			}
		}
	case OnlySpread, PreferSpread:
		all = append(all, measure{kind: oneACore})
	}
	if c.Bind != OnlyWhole && c.Bind != OnlySpread {
		all = append(all, measure{kind: anyCPU})
	}
	return all
}

// fitOwn chooses own CPUs in the given mask. It keeps the CPUs that the
// workload has, also those outside this mask. If one kind of core is enough,
// all CPUs are of this kind. The fastest kind is tried first.
func (m *Map) fitOwn(s Seats, c Claim, from mask) (Offer, bool) {
	have := m.maskOf(c.Have)
	for i := range have {
		have[i] &= s.open[i]
	}
	n, had := int32(c.CPUs), have.count(0, int32(len(m.cpus)))
	switch {
	case n == had:
		return m.judge(have), true
	case n < had:
		for i := range have {
			have[i] &= from[i]
		}
		return m.shrink(s, c, have)
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
			if o := m.judge(set); c.Bind != OnlyWhole || o.Split == 0 {
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
func (m *Map) shrink(s Seats, c Claim, have mask) (Offer, bool) {
	s.open, s.soft, s.least = have, make([]unit.MilliCPU, len(m.pools)), make([]int32, len(m.pools))
	for _, by := range measuresOf(m, &c) {
		f := finder{m: m, open: have, have: m.mask(), by: by, room: m.room(&s, have, by), n: int32(c.CPUs), within: Machine}
		if set := f.find(false); set != nil {
			return m.judge(set), true
		}
	}
	return Offer{}, false
}

// roomFor subtracts the CPUs that the claim already has (have) from the room of
// the pools.
func roomFor(m *Map, room []int32, have mask) []int32 {
	for i, p := range m.pools {
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
