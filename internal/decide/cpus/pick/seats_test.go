package pick

import (
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// TestSeatsKeepNoMoreOpenThanTheirWorkRequests checks how many CPUs of a node
// with eight CPUs and two L3 caches a claim may own beside work with seats. A pod
// with the smallest request and a limit of all CPUs must not keep all of them
// open.
func TestSeatsKeepNoMoreOpenThanTheirWorkRequests(t *testing.T) {
	m := Compile(machine(1, 2, 2, 2))
	seats := func(n int, request unit.MilliCPU, within Level, apart Separation) Claim {
		return Claim{Grade: Seated, CPUs: n, Request: request, Within: within, Apart: apart}
	}
	for name, c := range map[string]struct {
		work []Claim
		most int // number of CPUs that a claim may own
	}{
		"the smallest request, and all CPUs as seats": {[]Claim{seats(8, 1, Machine, Anywhere)}, 7},
		"no request":                                    {[]Claim{seats(8, 0, Machine, Anywhere)}, 7},
		"a hundred such pods":                           {repeat(seats(8, 1, Machine, Anywhere), 100), 7},
		"a request that is not whole":                   {[]Claim{seats(8, 1500, Machine, Anywhere)}, 6},
		"requests that add up to less than a CPU":       {[]Claim{seats(4, 400, L3, Anywhere), seats(4, 500, L3, Anywhere)}, 7},
		"a request of one more than a CPU":              {[]Claim{seats(4, 1001, L3, Anywhere)}, 6},
		"requests of all seats":                         {[]Claim{seats(4, 3999, L3, Anywhere)}, 4},
		"pods that keep apart: each place keeps a CPU":  {[]Claim{seats(2, 1, L3, ApartCores), seats(4, 1, L3, ApartCores)}, 6},
		"a pool with the smallest request keeps one":    {[]Claim{{Grade: Pooled, Request: 1}}, 7},
		"pools and seats together round up their total": {[]Claim{{Grade: Pooled, Request: 300, Within: L3}, seats(4, 600, L3, Anywhere)}, 7},
	} {
		s := m.Seats(unit.CPUSet{}, 1, nil)
		for _, w := range c.work {
			o, why := m.Fit(s, w)
			if why != Fits {
				t.Fatalf("%s: %+v: %s", name, w, why)
			}
			s = m.With(s, w.Hold(o))
		}
		most := 0
		for n := 1; n <= 8; n++ {
			if _, why := m.Fit(s, Claim{Grade: Own, CPUs: n}); why == Fits {
				most = n
			}
		}
		if most != c.most {
			t.Errorf("%s: %d CPUs can be owned, want %d", name, most, c.most)
		}
	}
}

// TestSeatsShrinkWherePodsOwnTheirCPUs checks that work with seats on CPUs that
// another pod came to own keeps at least one seat for each CPU that it requests.
func TestSeatsShrinkWherePodsOwnTheirCPUs(t *testing.T) {
	m := Compile(machine(1, 1, 4, 2))
	for request := unit.MilliCPU(1); request <= 8000; request += 333 {
		w := Claim{Grade: Seated, CPUs: 8, Request: request}
		s := m.Seats(unit.CPUSet{}, 1, nil)
		o, why := m.Fit(s, w)
		if why != Fits {
			t.Fatal(why)
		}
		h := w.Hold(o)
		s = m.With(s, h)
		for { // owners take what they can
			own, why := m.Fit(s, Claim{Grade: Own, CPUs: 1})
			if why != Fits {
				break
			}
			s = m.With(s, Hold{Grade: Own, CPUs: own.CPUs})
		}
		set, _ := m.Reseat(s, h, w.CPUs)
		if least := int((request + 999) / unit.CPUs(1)); set.Len() != least || !m.Open(s).Contains(set) {
			t.Errorf("a request of %v has the seats %v of the open CPUs %v, want %d", request, set, m.Open(s), least)
		}
	}
}

func repeat(c Claim, n int) []Claim {
	all := make([]Claim, n)
	for i := range all {
		all[i] = c
	}
	return all
}
