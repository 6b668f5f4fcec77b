package pick

import (
	"math/bits"
	"math/rand/v2"
	"os"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// TestWorkWithTheSameSeparationIsApart places claims one after the other on a machine
// of two NUMA nodes. Each node has two L3 caches of two cores.
func TestWorkWithTheSameSeparationIsApart(t *testing.T) {
	m := Compile(machine(2, 2, 2, 2))
	own := func(n int, apart cpus.ExclusivePolicy) cpus.Request {
		return cpus.Request{Policy: cpus.Exclusive, CPUs: n, Exclusive: apart}
	}
	seat := func(n int, apart cpus.ExclusivePolicy) cpus.Request {
		return cpus.Request{Policy: cpus.Shared, CPUs: n, CPU: 100, Exclusive: apart}
	}
	pool := func(apart cpus.ExclusivePolicy) cpus.Request {
		return cpus.Request{Policy: cpus.Pool, CPU: 100, Exclusive: apart}
	}
	for name, c := range map[string]struct {
		claims []cpus.Request
		want   []string
	}{
		"anywhere":                       {[]cpus.Request{own(1, cpus.NotExclusive), own(1, cpus.NotExclusive)}, []string{"15", "14"}},
		"cores":                          {[]cpus.Request{own(1, cpus.PCPULevel), own(1, cpus.PCPULevel)}, []string{"15", "13"}},
		"NUMA nodes":                     {[]cpus.Request{own(1, cpus.NUMANodeLevel), own(1, cpus.NUMANodeLevel)}, []string{"15", "7"}},
		"the other kind does not count":  {[]cpus.Request{own(1, cpus.NUMANodeLevel), own(1, cpus.PCPULevel)}, []string{"15", "14"}},
		"nor does other work":            {[]cpus.Request{own(1, cpus.NotExclusive), own(1, cpus.PCPULevel)}, []string{"15", "14"}},
		"another cache is another place": {[]cpus.Request{own(1, cpus.PCPULevel), own(3, cpus.PCPULevel)}, []string{"15", "9-11"}},
		"two nodes are another place":    {[]cpus.Request{own(1, cpus.PCPULevel), own(8, cpus.PCPULevel)}, []string{"15", "0-7"}},
		"no other node":                  {[]cpus.Request{own(1, cpus.NUMANodeLevel), own(1, cpus.NUMANodeLevel), own(1, cpus.NUMANodeLevel)}, []string{"15", "7", "14"}},
		"no other core":                  {[]cpus.Request{own(15, cpus.PCPULevel), own(1, cpus.PCPULevel)}, []string{"1-15", "0"}},
		"seats beside own CPUs":          {[]cpus.Request{own(1, cpus.PCPULevel), seat(2, cpus.PCPULevel)}, []string{"15", "12-13"}},
		"seats on other cores":           {[]cpus.Request{seat(1, cpus.PCPULevel), seat(1, cpus.PCPULevel)}, []string{"0", "2"}},
		"seats share CPUs anywhere":      {[]cpus.Request{seat(4, cpus.NotExclusive), seat(4, cpus.NotExclusive)}, []string{"0-3", "0-3"}},
		"seats on another node":          {[]cpus.Request{seat(1, cpus.NUMANodeLevel), seat(1, cpus.NUMANodeLevel)}, []string{"0", "8"}},
		"pools of other caches":          {[]cpus.Request{pool(cpus.PCPULevel), pool(cpus.PCPULevel)}, []string{"0-3", "4-7"}},
		"pools of other nodes":           {[]cpus.Request{pool(cpus.NUMANodeLevel), pool(cpus.NUMANodeLevel)}, []string{"0-3", "8-11"}},
		"own CPUs outside a pool":        {[]cpus.Request{pool(cpus.NUMANodeLevel), own(2, cpus.NotExclusive), own(2, cpus.NUMANodeLevel)}, []string{"0-3", "2-3", "14-15"}},
	} {
		s := m.Seats(unit.CPUSet{}, 0, nil)
		for i, claim := range c.claims {
			o, why := m.Fit(s, claim)
			if why != cpus.Fits || o.CPUs.String() != c.want[i] {
				t.Errorf("%s: claim %d gets %q (%s), want %s", name, i+1, o.CPUs, why, c.want[i])
			}
			s = m.With(s, o.Allocation(claim))
		}
	}
}

// TestOwnCPUsGrowAndShrinkApart lets a workload grow and shrink beside others
// with the same exclusive policy. It keeps the CPUs that it has.
func TestOwnCPUsGrowAndShrinkApart(t *testing.T) {
	m := Compile(machine(1, 2, 4, 2))
	for name, c := range map[string]struct {
		beside, have string
		n            int
		want         string
	}{
		"not on the core of other work":     {"0,8", "2", 3, "2-3,7"},
		"it keeps a CPU beside other work":  {"0,8", "1", 2, "1,7"},
		"it gives up a CPU beside others":   {"0", "1-3", 2, "2-3"},
		"but not more CPUs than it must":    {"0", "1-3", 3, "1-3"},
		"it grows beside others if it must": {"0,2,4,6,8,10,12,14", "1", 2, "1,7"},
	} {
		s := m.Seats(set(t, c.beside), 0, []cpus.Allocation{{CPUs: set(t, c.beside), Exclusive: cpus.PCPULevel}})
		o, why := m.Resize(s, cpus.Request{Policy: cpus.Exclusive, CPUs: c.n, Exclusive: cpus.PCPULevel}, set(t, c.have))
		if why != cpus.Fits || o.CPUs.String() != c.want {
			t.Errorf("%s: %q (%s), want %s", name, o.CPUs, why, c.want)
		}
	}
}

// TestASeatMovesApart takes a seat away. The new seat must not share a core
// with work of the same exclusive policy.
func TestASeatMovesApart(t *testing.T) {
	m := Compile(machine(1, 1, 4, 2))
	h := cpus.Allocation{Policy: cpus.Shared, CPUs: set(t, "0,2"), Domain: m.All(), CPU: 100, Exclusive: cpus.PCPULevel}
	s := m.Seats(set(t, "0-1"), 0, []cpus.Allocation{{CPUs: set(t, "4"), Exclusive: cpus.PCPULevel}})
	if got, moved := m.Reseat(s, h, 2); got.String() != "2-3" || !moved {
		t.Errorf("seats on %v, want 2-3", got)
	}
	if got, _ := m.Reseat(s, h, 5); got.String() != "2-4,6-7" {
		t.Errorf("five seats are %v, want 2-4,6-7", got)
	}
}

// TestANodeWithAPlaceApartRatesHigher compares the ratings of two machines.
func TestANodeWithAPlaceApartRatesHigher(t *testing.T) {
	m := Compile(machine(2, 1, 2, 2))
	worth := func(apart cpus.ExclusivePolicy, beside string) int64 {
		u := m.Sum(m.Seats(set(t, beside), 0, []cpus.Allocation{{CPUs: set(t, beside), Exclusive: cpus.NUMANodeLevel}}))
		return u.Worth(&cpus.Request{Policy: cpus.Exclusive, CPUs: 2, Exclusive: apart})
	}
	if one, both := worth(cpus.NUMANodeLevel, "0"), worth(cpus.NUMANodeLevel, "0,4"); one <= both || both <= 0 {
		t.Errorf("a free NUMA node is rated %d, and none %d", one, both)
	}
	if a, b := worth(cpus.NotExclusive, "0"), worth(cpus.PCPULevel, "0"); a != b {
		t.Errorf("rated %d without an exclusive policy, and %d with one that no work has", a, b)
	}
}

// near returns the positions that a claim should avoid: those on cores or NUMA
// nodes of work with the same exclusive policy. It has no code in common with the choice.
func near(m *Map, holds []cpus.Allocation, apart cpus.ExclusivePolicy) (all uint64) {
	for _, h := range holds {
		if apart == cpus.NotExclusive || h.Exclusive != apart {
			continue
		}
		for _, used := range m.cpus {
			if !h.CPUs.Has(used.ID) {
				continue
			}
			for i, c := range m.cpus {
				if c.NUMA == used.NUMA && (apart == cpus.NUMANodeLevel || c.Core == used.Core) {
					all |= 1 << i
				}
			}
		}
	}
	return all
}

// hasPlace reports whether a claim has a place that avoids some positions. It
// tries all sets of CPUs, or all pools.
func hasPlace(m *Map, s Seats, c cpus.Request, avoid uint64) bool {
	words := func(l cpus.Level) []uint64 {
		var all []uint64
		for _, p := range m.domains[m.first[l]:m.first[l+1]] {
			all = append(all, (1<<p.hi-1)&^(1<<p.lo-1))
		}
		return all
	}
	if c.Policy != cpus.Exclusive {
		for l := c.Within; l < cpus.Levels; l++ {
			for i, w := range words(l) {
				open := s.open[0] & w
				if slack, _ := m.slack(&s, m.first[l]+int32(i)); slack < c.CPU || open == 0 {
					continue
				}
				if c.Policy == cpus.Pool && open&avoid == 0 || c.Policy == cpus.Shared && bits.OnesCount64(open&^avoid) >= c.CPUs {
					return true
				}
			}
		}
		return false
	}
	nodes := words(cpus.NUMA)
	for set := uint64(1); set < 1<<len(m.cpus); set++ {
		if bits.OnesCount64(set) != c.CPUs || set&(avoid|^s.open[0]) != 0 || !leavesEnough(m, s, set) {
			continue
		}
		ok := false
		for _, w := range words(c.Within) {
			ok = ok || set&^w == 0
		}
		used, size := 0, int32(0)
		for _, w := range nodes {
			if set&w != 0 {
				used++
			}
		}
		ok = ok && (!c.Fewest || used <= m.fewestNodes(int32(c.CPUs)))
		for _, k := range m.cores {
			w := uint64(1<<k.hi-1) &^ (1<<k.lo - 1)
			if set&w == 0 {
				continue
			}
			switch c.Bind {
			case cpus.OnlySpread:
				ok = ok && bits.OnesCount64(set&w) == 1
			case cpus.OnlyWhole:
				ok = ok && set&w == w && (size == 0 || size == k.hi-k.lo)
				size = k.hi - k.lo
			}
		}
		if ok {
			return true
		}
	}
	return false
}

// TestNoClaimSharesWhileAnotherPlaceExists places random claims with an exclusive policy
// on random machines of up to 16 CPUs. A claim must avoid work with the same
// exclusive policy if a place allows it, and must get the best such place. The summary
// must agree. TENON_TEST_LONG=1 tries more.
func TestNoClaimSharesWhileAnotherPlaceExists(t *testing.T) {
	rnd := rand.New(rand.NewPCG(65, 66))
	tries := 150
	if os.Getenv("TENON_TEST_LONG") != "" {
		tries = 4000
	}
	apart, beside, inexact := 0, 0, 0
	for try := range tries {
		topo := anyMachine(rnd, 16)
		for i := range topo.CPUs {
			topo.CPUs[i].Kind = 0
		}
		m := Compile(topo)
		off, keep := some(rnd, topo.All()).Intersect(some(rnd, topo.All())), rnd.IntN(2)
		var holds []cpus.Allocation
		for range 10 {
			c := anyDemand(rnd, m)
			c.CPUs = max(min(c.CPUs, 1+rnd.IntN(4)), 1)
			if c.Exclusive = cpus.ExclusivePolicy(1 + rnd.IntN(2)); rnd.IntN(3) > 0 {
				c.Bind, c.Within, c.Fewest = cpus.AnyCores, cpus.Machine, false
			}
			s := m.Seats(off, keep, holds)
			o, why := m.Fit(s, c)
			avoid := near(m, holds, c.Exclusive)
			shares := m.maskOf(o.CPUs)[0]&avoid != 0
			can := hasPlace(m, s, c, avoid)
			if (why == cpus.Fits) != (can || hasPlace(m, s, c, 0)) || why == cpus.Fits && shares == can {
				t.Fatalf("try %d: %+v gets %v (%q), shares: %v, has another place: %v\n%+v\n%+v", try, c, o.CPUs, why, shares, can, topo, holds)
			}
			u := m.Sum(s)
			if a := u.apart[c.Exclusive]; why == cpus.Fits && (a == nil || a.Room(&c) == cpus.Fits) != can {
				t.Fatalf("try %d: %+v has another place: %v; the summary says the opposite\n%+v\n%+v", try, c, can, topo, holds)
			}
			if why != cpus.Fits {
				continue
			}
			if apart++; !can {
				apart--
				beside++
				avoid = 0
			}
			if c.Policy == cpus.Exclusive && c.Bind == cpus.AnyCores && c.Within == cpus.Machine && !c.Fewest {
				want, _ := optimum(m, s, c.CPUs, avoid)
				if got := (rating{o.Nodes, o.Sockets, o.Caches, o.Split}); !sameRating(got, want, s.soft[0] == 0) {
					t.Fatalf("try %d: %+v gets %v, rated %v; the best is %v\n%+v\n%+v", try, c, o.CPUs, got, want, topo, holds)
				} else if got != want {
					inexact++
				}
			}
			holds = append(holds, o.Allocation(c))
		}
	}
	t.Logf("%d claims are apart, and %d have no such place; %d beside shared work split more than the best", apart, beside, inexact)
	if apart < 3*tries || beside < tries/4 || inexact*100 > apart+beside {
		t.Error("too few claims of one kind, or too many split cores")
	}
}
