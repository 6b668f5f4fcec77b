package pick

import (
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// TestSeatsKeepNoMoreOpenThanTheirWorkRequests checks how many CPUs of a node
// with eight CPUs and two L3 caches a claim may own beside work with seats. A pod
// with the smallest request and a limit of all CPUs must not keep all of them
// open.
func TestSeatsKeepNoMoreOpenThanTheirWorkRequests(t *testing.T) {
	m := Compile(machine(1, 2, 2, 2))
	seats := func(n int, request unit.MilliCPU, within cpus.Level, apart cpus.ExclusivePolicy) cpus.Request {
		return cpus.Request{Policy: cpus.Shared, CPUs: n, CPU: request, Within: within, Exclusive: apart}
	}
	for name, c := range map[string]struct {
		work []cpus.Request
		most int // number of CPUs that a claim may own
	}{
		"the smallest request, and all CPUs as seats": {[]cpus.Request{seats(8, 1, cpus.Machine, cpus.NotExclusive)}, 7},
		"no request":                                    {[]cpus.Request{seats(8, 0, cpus.Machine, cpus.NotExclusive)}, 7},
		"a hundred such pods":                           {repeat(seats(8, 1, cpus.Machine, cpus.NotExclusive), 100), 7},
		"a request that is not whole":                   {[]cpus.Request{seats(8, 1500, cpus.Machine, cpus.NotExclusive)}, 6},
		"requests that add up to less than a CPU":       {[]cpus.Request{seats(4, 400, cpus.L3, cpus.NotExclusive), seats(4, 500, cpus.L3, cpus.NotExclusive)}, 7},
		"a request of one more than a CPU":              {[]cpus.Request{seats(4, 1001, cpus.L3, cpus.NotExclusive)}, 6},
		"requests of all seats":                         {[]cpus.Request{seats(4, 3999, cpus.L3, cpus.NotExclusive)}, 4},
		"pods that keep apart: each place keeps a CPU":  {[]cpus.Request{seats(2, 1, cpus.L3, cpus.PCPULevel), seats(4, 1, cpus.L3, cpus.PCPULevel)}, 6},
		"a pool with the smallest request keeps one":    {[]cpus.Request{{Policy: cpus.Pool, CPU: 1}}, 7},
		"pools and seats together round up their total": {[]cpus.Request{{Policy: cpus.Pool, CPU: 300, Within: cpus.L3}, seats(4, 600, cpus.L3, cpus.NotExclusive)}, 7},
	} {
		s := m.Seats(unit.CPUSet{}, 1, nil)
		for _, w := range c.work {
			o, why := m.Fit(s, w)
			if why != cpus.Fits {
				t.Fatalf("%s: %+v: %s", name, w, why)
			}
			s = m.With(s, o.Allocation(w))
		}
		most := 0
		for n := 1; n <= 8; n++ {
			if _, why := m.Fit(s, cpus.Request{Policy: cpus.Exclusive, CPUs: n}); why == cpus.Fits {
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
		w := cpus.Request{Policy: cpus.Shared, CPUs: 8, CPU: request}
		s := m.Seats(unit.CPUSet{}, 1, nil)
		o, why := m.Fit(s, w)
		if why != cpus.Fits {
			t.Fatal(why)
		}
		h := o.Allocation(w)
		s = m.With(s, h)
		for { // owners take what they can
			own, why := m.Fit(s, cpus.Request{Policy: cpus.Exclusive, CPUs: 1})
			if why != cpus.Fits {
				break
			}
			s = m.With(s, cpus.Allocation{Policy: cpus.Exclusive, CPUs: own.CPUs})
		}
		set, _ := m.Reseat(s, h, w.CPUs)
		if least := int((request + 999) / unit.CPUs(1)); set.Len() != least || !m.Open(s).Contains(set) {
			t.Errorf("a request of %v has the seats %v of the open CPUs %v, want %d", request, set, m.Open(s), least)
		}
	}
}

func repeat(c cpus.Request, n int) []cpus.Request {
	all := make([]cpus.Request, n)
	for i := range all {
		all[i] = c
	}
	return all
}
