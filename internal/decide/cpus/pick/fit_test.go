package pick

import (
	"math"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// anyMachine returns a random topology. A core has one to four threads, caches
// may be larger than NUMA nodes, CPUs may be offline, and cores may be of
// several kinds. Siblings need not have consecutive numbers.
func anyMachine(rnd *rand.Rand, most int) node.Topology {
	for {
		sockets, nodes, caches, cores, threads := 1+rnd.IntN(2), 1+rnd.IntN(3), 1+rnd.IntN(4), 1+rnd.IntN(8), 1+rnd.IntN(4)
		n := sockets * nodes * caches * cores * threads
		if n > most {
			continue
		}
		shared := rnd.IntN(4) == 0 // one L3 for all NUMA nodes of a socket
		apart := rnd.IntN(2) == 0  // the siblings of CPU 0 are n/threads, 2n/threads ...
		holes := rnd.IntN(3) == 0
		kinds := 1
		if rnd.IntN(4) == 0 {
			kinds = 2
		}
		var t node.Topology
		for id := range n {
			core, l3 := id/threads, id/threads/cores
			if apart {
				core = id % (n / threads)
				l3 = core / cores
			}
			if holes && rnd.IntN(4) == 0 {
				continue
			}
			numa := l3 / caches
			c := node.LogicalCPU{ID: unit.CPU(id), Core: node.CoreID(core), L3: node.CacheID(l3), NUMA: node.NUMANode(numa), Socket: node.SocketID(numa / nodes)}
			if shared {
				c.L3 = node.CacheID(c.Socket)
			}
			if kinds == 2 && core%cores >= cores/2 {
				c.Kind = 1
			}
			t.CPUs = append(t.CPUs, c)
		}
		if len(t.CPUs) > 0 {
			return t
		}
	}
}

// strangeMachine returns a topology that no real machine has: a core may span
// caches and nodes, and a node may span sockets.
func strangeMachine(rnd *rand.Rand) node.Topology {
	topo := node.Topology{CPUs: []node.LogicalCPU{{ID: 3}}}
	for c := range 40 {
		if c != 3 && rnd.IntN(4) > 0 {
			topo.CPUs = append(topo.CPUs, node.LogicalCPU{
				ID: unit.CPU(c), Core: node.CoreID(rnd.IntN(12)), L3: node.CacheID(rnd.IntN(5)), NUMA: node.NUMANode(rnd.IntN(3)), Socket: node.SocketID(rnd.IntN(2)),
			})
		}
	}
	return topo
}

// anyDemand returns a random claim.
func anyDemand(rnd *rand.Rand, m *Map) cpus.Request {
	n := rnd.IntN(max(m.Len()/2, 2) + 1)
	c := cpus.Request{
		Policy: cpus.Policy(1 + rnd.IntN(3)), CPUs: n, Bind: cpus.Bind(rnd.IntN(5)), Within: []cpus.Level{cpus.Machine, cpus.Machine, cpus.Socket, cpus.NUMA, cpus.L3}[rnd.IntN(5)],
		Fewest: rnd.IntN(4) == 0, Exclusive: []cpus.ExclusivePolicy{cpus.NotExclusive, cpus.NotExclusive, cpus.PCPULevel, cpus.NUMANodeLevel}[rnd.IntN(4)],
	}
	if c.Policy != cpus.Exclusive {
		c.CPU = unit.MilliCPU(rnd.IntN(n*1000 + 1))
	}
	return c
}

// TestRoomIsExact places random claims on random machines and ends some of
// them. A summary must say that a claim fits if and only if Fit finds CPUs. An
// offer must be what the claim demands, and shared work must keep what it
// requests.
func TestRoomIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(41, 42))
	for try := range 150 {
		most := 96
		if try == 0 {
			most = 1024
		}
		topo := anyMachine(rnd, most)
		if try%5 == 1 {
			topo = strangeMachine(rnd)
		}
		m := Compile(topo)
		off, keep := some(rnd, topo.All()).Intersect(some(rnd, topo.All())), rnd.IntN(3)
		var holds []cpus.Allocation
		for range 24 {
			if len(holds) > 0 && rnd.IntN(3) == 0 {
				i := rnd.IntN(len(holds))
				holds = append(holds[:i:i], holds[i+1:]...)
			}
			s := m.Seats(off, keep, holds)
			c := anyDemand(rnd, m)
			u := m.Sum(s)
			room := u.Room(&c)
			o, why := m.Fit(s, c)
			if room != why {
				t.Fatalf("try %d: the summary says %q and the choice %q for %+v", try, room, why, c)
			}
			if worth := u.Worth(&c); worth < 0 || worth > 100 {
				t.Fatalf("try %d: worth %d", try, worth)
			}
			if why != cpus.Fits {
				continue
			}
			checkOffer(t, m, s, c, o)
			if away := u.apart[c.Exclusive]; away != nil && (away.Room(&c) == cpus.Fits) == (s.marked[c.Exclusive].meets(m.maskOf(o.CPUs))) {
				t.Fatalf("try %d: %+v gets %v, and the summary says %q of CPUs away from such work", try, c, o.CPUs, away.Room(&c))
			}
			holds = append(holds, o.Allocation(c))
			checkShared(t, m, m.Seats(off, keep, holds), keep)
			if t.Failed() {
				t.Fatalf("try %d: %+v got %+v", try, c, o)
			}
		}
	}
}

func (b mask) meets(o mask) bool {
	for i := range b {
		if b[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// checkOffer checks an offer against its claim.
func checkOffer(t *testing.T, m *Map, s Seats, c cpus.Request, o Offer) {
	t.Helper()
	open := m.Open(s)
	if !open.Contains(o.CPUs) || o.CPUs.Empty() {
		t.Errorf("%v of the open CPUs %v", o.CPUs, open)
	}
	if c.Policy != cpus.Pool && o.CPUs.Len() != c.CPUs {
		t.Errorf("%d CPUs instead of %d", o.CPUs.Len(), c.CPUs)
	}
	within := o.CPUs
	if c.Policy != cpus.Exclusive {
		within = o.Domain
	}
	if at := m.smallestDomain(within); c.Within > cpus.Machine {
		for l := m.levelOf(at); l < c.Within; l++ {
			if m.domains[at].after != m.domains[at].child+1 {
				t.Errorf("%v is not in one %v", within, c.Within)
				break
			}
			at = m.domains[at].child
		}
	}
	if c.Policy != cpus.Exclusive {
		return
	}
	if c.Bind == cpus.OnlyWhole && o.Split != 0 {
		t.Errorf("%v splits %d", o.CPUs, o.Split)
	}
	if c.Bind == cpus.OnlySpread {
		set := m.maskOf(o.CPUs)
		for _, k := range m.cores {
			if set.count(k.lo, k.hi) > 1 {
				t.Errorf("%v has two CPUs of a core", o.CPUs)
			}
		}
	}
}

// checkShared checks that each domain has the CPUs that its shared work requests.
func checkShared(t *testing.T, m *Map, s Seats, keep int) {
	t.Helper()
	for i, p := range m.domains {
		open := s.open.count(p.lo, p.hi)
		if s.soft[i] > unit.CPUs(int(open)) || s.least[i] > max(open, int32(keep)) {
			t.Errorf("domain %d has %d open CPUs, and its work requests %v and %d CPUs", i, open, s.soft[i], s.least[i])
		}
	}
}

// TestStrandedCPUsAreThoseThatNoSuchClaimGets makes claims of one size until
// the next one does not fit into one cache. The remaining CPUs are stranded.
func TestStrandedCPUsAreThoseThatNoSuchClaimGets(t *testing.T) {
	m := Compile(machine(1, 4, 4, 2))
	for n := 1; n <= 8; n++ {
		holds := []cpus.Allocation{{Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(0, 1, 2, 8)}}
		s := m.Seats(unit.CPUSet{}, 0, holds)
		u := m.Sum(s)
		want := u.Stranded(n)
		for {
			o, why := m.Fit(s, cpus.Request{Policy: cpus.Exclusive, CPUs: n, Within: cpus.L3})
			if why != cpus.Fits {
				break
			}
			s = m.With(s, cpus.Allocation{Policy: cpus.Exclusive, CPUs: o.CPUs})
		}
		if left := m.Open(s).Len(); left != want {
			t.Errorf("claims of %d CPUs leave %d, and %d are stranded", n, left, want)
		}
	}
}

// TestANearerPlaceRatesHigher checks the order of the rating: first the level,
// then whole cores, then how much of a domain remains.
func TestANearerPlaceRatesHigher(t *testing.T) {
	m := Compile(machine(2, 2, 4, 2)) // L3 caches of eight CPUs, 16 a NUMA node
	worth := func(off string, n int) int64 {
		u := m.Sum(m.Seats(set(t, off), 0, nil))
		return u.Worth(&cpus.Request{Policy: cpus.Exclusive, CPUs: n})
	}
	order := []struct {
		what string
		w    int64
	}{
		{"one L3 cache and nothing left", worth("0-11,16-31", 4)},
		{"one L3 cache and one core left", worth("0-9,16-31", 4)},
		{"one L3 cache and all of it left but the claim", worth("0-7", 4)},
		{"one L3 cache, on split cores, and nothing left", worth("0-7,8,10,12,14,16-31", 4)},
		{"one NUMA node and nothing left", worth("2-7,10-31", 4)},
		{"one NUMA node, on split cores", worth("2-7,10-15,16-31,1,9", 2)},
		{"two NUMA nodes", worth("2-15,18-31", 4)},
	}
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.w <= b.w {
			t.Errorf("%s is rated %d, and %s %d", a.what, a.w, b.what, b.w)
		}
	}
}

// TestAPlaceHasOneName places seats and pools on random machines. An offer and
// a set of CPUs both give the level of a place. The two cpus.Levels must agree, also
// if an L3 cache is the whole node.
func TestAPlaceHasOneName(t *testing.T) {
	one := Compile(machine(1, 1, 4, 2))
	o, why := one.Fit(one.Seats(unit.CPUSet{}, 0, nil), cpus.Request{Policy: cpus.Shared, CPUs: 2})
	if why != cpus.Fits || o.Level.One() != "one L3 cache" || one.LevelOf(o.Domain) != o.Level {
		t.Errorf("seats are in %v, which is called %v elsewhere: %q", o.Level.One(), one.LevelOf(o.Domain), why)
	}
	rnd := rand.New(rand.NewPCG(61, 62))
	names := map[string]int{}
	for range 500 {
		m := Compile(anyMachine(rnd, 96))
		c := anyDemand(rnd, m)
		c.Policy = cpus.Shared + cpus.Policy(rnd.IntN(2))
		if rnd.IntN(4) == 0 {
			c.CPUs, c.CPU, c.Within = m.Len(), unit.CPUs(m.Len()), cpus.Machine
		}
		o, why := m.Fit(m.Seats(unit.CPUSet{}, 0, nil), c)
		if why != cpus.Fits {
			continue
		}
		if m.LevelOf(o.Domain) != o.Level || o.Level < c.Within {
			t.Fatalf("%+v: %v is called %v and %v", c, o.Domain, o.Level, m.LevelOf(o.Domain))
		}
		names[o.Level.One()]++
	}
	for _, name := range []string{"the node", "one socket", "one NUMA node", "one L3 cache"} {
		if names[name] == 0 {
			t.Errorf("no place is called %q: %v", name, names)
		}
	}
}

// TestATopologyWithoutCPUsHasRoomForNothing calls the functions of a map of no
// CPUs, as of a node whose report is empty. They must not panic.
func TestATopologyWithoutCPUsHasRoomForNothing(t *testing.T) {
	m := Compile(node.Topology{})
	some := set(t, "0-3")
	if m.Len() != 0 || !m.All().Empty() || m.LevelOf(some) != cpus.Machine || m.LevelOf(unit.CPUSet{}) != cpus.Machine || len(Cores(m)) != 0 {
		t.Errorf("it has %d CPUs, %v; the level of CPUs 0-3 is %v", m.Len(), m.All(), m.LevelOf(some))
	}
	holds := []cpus.Allocation{{Policy: cpus.Exclusive, CPUs: some}, {Policy: cpus.Shared, CPUs: some, Domain: some, CPU: 500}, {Policy: cpus.Pool, Domain: some, CPU: 500}}
	s := m.Seats(some, 1, holds)
	for _, h := range holds {
		s = m.Reopen(m.With(s, h), some)
		if moved, _ := m.Reseat(s, h, 2); !moved.Empty() {
			t.Errorf("%+v gets %v", h, moved)
		}
	}
	for _, g := range []cpus.Policy{cpus.Exclusive, cpus.Shared, cpus.Pool} {
		for _, apart := range []cpus.ExclusivePolicy{0, cpus.PCPULevel, cpus.NUMANodeLevel} {
			c := cpus.Request{Policy: g, CPUs: 1, Exclusive: apart}
			u := m.Sum(s)
			if o, why := m.Fit(s, c); why == cpus.Fits || why != u.Room(&c) {
				t.Errorf("a claim of %v gets %v: %q, %q", g, o.CPUs, why, u.Room(&c))
			}
		}
	}
	if !m.Open(s).Empty() || m.Judge(some).Nodes != 0 || len(m.Cut(some, []int{1})) != 1 || !m.SameTopology(node.Topology{}) {
		t.Error("it has open CPUs, or a place")
	}
	for range m.Nodes(some) {
		t.Error("it has a NUMA node")
	}
}

// TestNoMachineHasMoreCPUsThanASetCanHold asks for numbers of CPUs that are beyond
// 32 bits. No such request fits, whatever its lower bits are.
func TestNoMachineHasMoreCPUsThanASetCanHold(t *testing.T) {
	m := Compile(machine(1, 1, 4, 2))
	seats := m.Seats(unit.CPUSet{}, 0, nil)
	for _, n := range []int{unit.MaxCPUs, unit.MaxCPUs + 1, 1<<31 + 2, 1<<32 + 2, math.MaxInt} {
		for _, bind := range []cpus.Bind{cpus.AnyCores, cpus.OnlyWhole, cpus.OnlySpread} {
			for _, policy := range []cpus.Policy{cpus.Exclusive, cpus.Shared} {
				r := cpus.Request{Policy: policy, CPUs: n, Bind: bind}
				if o, not := m.Fit(seats, r); not == cpus.Fits {
					t.Errorf("%+v: %v", r, o.CPUs)
				}
				if o, not := m.Resize(seats, r, set(t, "2-3")); not == cpus.Fits {
					t.Errorf("%+v beside 2-3: %v", r, o.CPUs)
				}
			}
		}
	}
}
