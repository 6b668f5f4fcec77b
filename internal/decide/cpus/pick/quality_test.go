package pick

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A chooser chooses n CPUs to own on a machine. It returns false if it finds
// none.
type chooser func(m *Map, s Seats, n int) (Offer, bool)

// chooseWithin chooses CPUs in only one domain.
func chooseWithin(m *Map, s Seats, p int32, n int) (Offer, bool) {
	part := s
	part.open = m.mask()
	for i := m.domains[p].lo; i < m.domains[p].hi; i++ {
		if s.open.has(i) {
			part.open.set(i)
		}
	}
	o, why := m.Fit(part, cpus.Request{Policy: cpus.Exclusive, CPUs: n})
	return o, why == cpus.Fits
}

// choosers are the choice of this package, and other choices to compare with
// it. The test compares their fragmentation: how many free CPUs no claim can
// use within one L3 cache, for the claim sizes of the trace.
var choosers = map[string]chooser{
	"this package (best fit)": func(m *Map, s Seats, n int) (Offer, bool) {
		o, why := m.Fit(s, cpus.Request{Policy: cpus.Exclusive, CPUs: n})
		return o, why == cpus.Fits
	},
	"least fragmentation": func(m *Map, s Seats, n int) (Offer, bool) {
		best, least := int32(-1), math.Inf(1)
		for i := m.first[cpus.L3]; i < m.first[cpus.L3+1]; i++ {
			free := int(s.open.count(m.domains[i].lo, m.domains[i].hi))
			if free < n {
				continue
			}
			f := 0.0
			for _, size := range traceSizes {
				f += float64((free-n)%size-free%size) / float64(len(traceSizes))
			}
			if f < least || f == least && free < int(s.open.count(m.domains[best].lo, m.domains[best].hi)) {
				best, least = i, f
			}
		}
		if best >= 0 {
			return chooseWithin(m, s, best, n)
		}
		o, why := m.Fit(s, cpus.Request{Policy: cpus.Exclusive, CPUs: n})
		return o, why == cpus.Fits
	},
	"fullest NUMA node, no L3": func(m *Map, s Seats, n int) (Offer, bool) {
		best, least := int32(-1), int32(math.MaxInt32)
		for i := m.first[cpus.NUMA]; i < m.first[cpus.NUMA+1]; i++ {
			if free := s.open.count(m.domains[i].lo, m.domains[i].hi); int(free) >= n && free < least {
				best, least = i, free
			}
		}
		if best < 0 {
			best = 0
		}
		return takeInOrder(m, s, best, n)
	},
}

// takeInOrder takes the whole free cores of a domain in the order of their
// numbers. Then it takes other CPUs.
func takeInOrder(m *Map, s Seats, p int32, n int) (Offer, bool) {
	set := m.mask()
	left := n
	for pass := range 2 {
		for _, c := range m.cores[m.domains[p].core:m.domains[p].last] {
			if size := int(c.hi - c.lo); pass == 0 && (int(s.open.count(c.lo, c.hi)) < size || left < size) {
				continue
			}
			for i := c.lo; i < c.hi && left > 0; i++ {
				if s.open.has(i) && !set.has(i) {
					set.set(i)
					left--
				}
			}
		}
	}
	return m.judge(set), left == 0
}

var traceSizes = []int{1, 2, 2, 4, 4, 4, 8, 8, 12, 16}

// A tally counts how the claims of a trace ended, in percent of all claims.
type tally struct{ oneCache, oneNode, split, waiting float64 }

// churn makes claims of random sizes and lifetimes on one machine. If a claim
// finds no CPUs, it is dropped. load is the demand as a fraction of the
// machine.
func churn(choose chooser, seed uint64, load float64, arrivals int) tally {
	rnd := rand.New(rand.NewPCG(seed, 99))
	m := Compile(machine(2, 8, 8, 2))
	type lease struct {
		hold cpus.Allocation
		ends float64
	}
	var leases []lease
	var t tally
	mean, now, placed := 6.1, 0.0, 0.0
	for range arrivals {
		now += rnd.ExpFloat64() * mean / (load * float64(m.Len()))
		alive := leases[:0]
		for _, l := range leases {
			if l.ends > now {
				alive = append(alive, l)
			}
		}
		leases = alive
		holds := make([]cpus.Allocation, len(leases))
		for i, l := range leases {
			holds[i] = l.hold
		}
		n := traceSizes[rnd.IntN(len(traceSizes))]
		ends := now + rnd.ExpFloat64()
		s := m.Seats(unit.CPUSet{}, 0, holds)
		o, ok := choose(m, s, n)
		if !ok {
			if m.Open(s).Len() >= n {
				t.waiting++
			}
			continue
		}
		placed++
		if o.Caches == 1 {
			t.oneCache++
		}
		if o.Nodes == 1 {
			t.oneNode++
		}
		if o.Split > n%2 {
			t.split++
		}
		leases = append(leases, lease{cpus.Allocation{Policy: cpus.Exclusive, CPUs: o.CPUs}, ends})
	}
	return tally{100 * t.oneCache / placed, 100 * t.oneNode / placed, 100 * t.split / placed, t.waiting}
}

// TestBestFitIsNoWorseThanOthers runs one trace with each chooser. It compares
// three shares: of claims in one L3 cache, of claims in one NUMA node, and of
// split cores. TENON_TEST_LONG=1 prints long traces at several loads.
func TestBestFitIsNoWorseThanOthers(t *testing.T) {
	loads, arrivals, seeds := []float64{0.6, 0.9}, 1500, uint64(2)
	if os.Getenv("TENON_TEST_LONG") != "" {
		loads, arrivals, seeds = []float64{0.5, 0.7, 0.8, 0.9, 1}, 4000, 5
	}
	for _, load := range loads {
		all := map[string]tally{}
		for name, choose := range choosers {
			var sum tally
			for seed := range seeds {
				r := churn(choose, seed, load, arrivals)
				t.Logf("load %.0f %% seed %d %-26s one L3 %.2f %%, one NUMA node %.2f %%, split %.2f %%", 100*load, seed, name, r.oneCache, r.oneNode, r.split)
				sum.oneCache += r.oneCache / float64(seeds)
				sum.oneNode += r.oneNode / float64(seeds)
				sum.split += r.split / float64(seeds)
			}
			all[name] = sum
		}
		ours, other := all["this package (best fit)"], all["fullest NUMA node, no L3"]
		if ours.oneCache < other.oneCache || ours.oneNode < other.oneNode-1 {
			t.Errorf("load %.2f: ours %+v, without caches %+v", load, ours, other)
		}
	}
}
