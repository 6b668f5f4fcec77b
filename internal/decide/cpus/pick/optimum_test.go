package pick

import (
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A rating lets two choices be compared. The first number that differs decides.
type rating [4]int // NUMA nodes, sockets, caches, CPUs on split cores

// optimum returns the best rating of a set of n open CPUs on a machine with at most 16 CPUs. It tries
// every set without positions to avoid that leaves enough CPUs for shared work. It shares no code
// with the choice that it checks.
func optimum(m *Map, s Seats, n int, avoid uint64) (rating, bool) {
	best, found := rating{}, false
	words := func(l cpus.Level) []uint64 {
		var all []uint64
		for _, p := range m.domains[m.first[l]:m.first[l+1]] {
			all = append(all, (1<<p.hi-1)&^(1<<p.lo-1))
		}
		return all
	}
	nodes, sockets, caches := words(cpus.NUMA), words(cpus.Socket), words(cpus.L3)
	for set := uint64(1)<<n - 1; set < 1<<len(m.cpus); {
		if set&(avoid|^s.open[0]) == 0 && leavesEnough(m, s, set) {
			var r rating
			for i, list := range [][]uint64{nodes, sockets, caches} {
				for _, w := range list {
					if set&w != 0 {
						r[i]++
					}
				}
			}
			for _, c := range m.cores {
				if w := uint64(1<<c.hi-1) &^ (1<<c.lo - 1); set&w != w {
					r[3] += bits.OnesCount64(set & w)
				}
			}
			if !found || slices.Compare(r[:], best[:]) < 0 {
				best, found = r, true
			}
		}
		low := set & -set // the next set of n bits
		up := set + low
		set = (set^up)>>2/low | up
	}
	return best, found
}

func leavesEnough(m *Map, s Seats, set uint64) bool {
	for i, p := range m.domains {
		w := uint64(1<<p.hi-1) &^ (1<<p.lo - 1)
		open := bits.OnesCount64(s.open[0] & w &^ set)
		if set&w != 0 && (unit.CPUs(open) < s.soft[i] || open < int(s.least[i])) {
			return false
		}
	}
	return true
}

// TestAChoiceIsTheBest compares the choice for a single claim with the best of
// all sets. It uses random machines of up to 16 CPUs in random states.
// TENON_TEST_LONG=1 tries more.
func TestAChoiceIsTheBest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(61, 62))
	tries := 600
	if os.Getenv("TENON_TEST_LONG") != "" {
		tries = 10000
	}
	claims, inexact := 0, 0
	for try := range tries {
		topo := anyMachine(rnd, 16)
		for i := range topo.CPUs {
			topo.CPUs[i].Kind = 0
		}
		m := Compile(topo)
		off := some(rnd, topo.All())
		var holds []cpus.Allocation
		for range rnd.IntN(3) {
			p := m.domains[rnd.IntN(len(m.domains))]
			var home unit.CPUSet
			for _, c := range m.cpus[p.lo:p.hi] {
				home = home.With(c.ID)
			}
			holds = append(holds, cpus.Allocation{Policy: cpus.Pool, Domain: home, CPU: unit.MilliCPU(rnd.IntN(int(p.hi-p.lo)*500 + 1))})
		}
		s := m.Seats(off, rnd.IntN(2), holds)
		for n := 1; n <= len(m.cpus); n++ {
			want, can := optimum(m, s, n, 0)
			o, why := m.Fit(s, cpus.Request{Policy: cpus.Exclusive, CPUs: n})
			if can != (why == cpus.Fits) {
				t.Fatalf("try %d: %d CPUs can be chosen: %v; the choice says %q", try, n, can, why)
			}
			if !can {
				break
			}
			claims++
			if got := (rating{o.Nodes, o.Sockets, o.Caches, o.Split}); !sameRating(got, want, len(holds) == 0) {
				t.Fatalf("try %d: %d CPUs of %v get %v, rated %v; the best is %v\n%+v\n%+v", try, n, m.Open(s), o.CPUs, got, want, topo, holds)
			} else if got != want {
				inexact++
			}
		}
	}
	t.Logf("%d claims; %d beside shared work split more than the best", claims, inexact)
	if inexact*100 > claims {
		t.Errorf("%d of %d claims split more than the best", inexact, claims)
	}
}

// sameRating compares two ratings. If there is shared work, exact is false, and
// the choice may split more cores than the best set. The choice counts the
// whole cores of each cache, and ignores that the shared work of a NUMA node
// takes some. All other numbers must be equal.
func sameRating(a, b rating, exact bool) bool {
	if !exact && a[3] > b[3] {
		a[3] = b[3]
	}
	return a == b
}
