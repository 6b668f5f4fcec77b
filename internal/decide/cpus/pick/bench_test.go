package pick

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// halfUsed returns a machine of 256 CPUs (two sockets with eight L3 caches
// each). Random claims hold about half of the CPUs.
func halfUsed() (*Map, Seats, []Hold) {
	rnd := rand.New(rand.NewPCG(71, 72))
	m := Compile(machine(2, 8, 8, 2))
	var holds []Hold
	for m.Open(m.Seats(unit.CPUSet{}, 1, holds)).Len() > 128 {
		c := Claim{Grade: Own, CPUs: 1 + rnd.IntN(8)}
		o, _ := m.Fit(m.Seats(unit.CPUSet{}, 1, holds), c)
		holds = append(holds, c.Hold(o))
	}
	return m, m.Seats(unit.CPUSet{}, 1, holds), holds
}

func BenchmarkRoom(b *testing.B) {
	m, s, _ := halfUsed()
	u := m.Sum(s)
	for name, c := range map[string]Claim{
		"own": {Grade: Own, CPUs: 4}, "whole cores": {Grade: Own, CPUs: 4, Bind: OnlyWhole}, "NUMA": {Grade: Own, CPUs: 8, Within: NUMA, Fewest: true},
		"pool": {Grade: Pooled, Request: 4000}, "pool in L3": {Grade: Pooled, Request: 4000, Within: L3},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				u.Room(&c)
			}
		})
	}
}

func BenchmarkWorth(b *testing.B) {
	m, s, _ := halfUsed()
	u := m.Sum(s)
	for name, c := range map[string]Claim{"own": {Grade: Own, CPUs: 4}, "own 24": {Grade: Own, CPUs: 24}, "pool": {Grade: Pooled, Request: 4000}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				u.Worth(&c)
			}
		})
	}
}

func BenchmarkFit(b *testing.B) {
	m, s, _ := halfUsed()
	for name, c := range map[string]Claim{
		"4": {Grade: Own, CPUs: 4}, "16": {Grade: Own, CPUs: 16}, "64": {Grade: Own, CPUs: 64}, "seats": {Grade: Seated, CPUs: 4, Request: 1000},
		"pool": {Grade: Pooled, Request: 4000},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				m.Fit(s, c)
			}
		})
	}
}

// BenchmarkApart uses a machine on which all work keeps to cores of its own. A
// claim of four CPUs finds other cores. A claim of all open CPUs does not.
func BenchmarkApart(b *testing.B) {
	m, _, holds := halfUsed()
	for i := range holds {
		holds[i].Apart = ApartCores
	}
	s := m.Seats(unit.CPUSet{}, 0, holds)
	u := m.Sum(s)
	four, all := Claim{Grade: Own, CPUs: 4, Apart: ApartCores}, Claim{Grade: Own, CPUs: m.Open(s).Len(), Apart: ApartCores}
	for name, do := range map[string]func(){
		"Room": func() { u.Room(&four) }, "Worth 4": func() { u.Worth(&four) }, "Worth all": func() { u.Worth(&all) },
		"Fit 4": func() { m.Fit(s, four) }, "Fit all": func() { m.Fit(s, all) }, "Sum": func() { m.Sum(s) },
		"Seats": func() { m.Seats(unit.CPUSet{}, 0, holds) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				do()
			}
		})
	}
}

func BenchmarkSum(b *testing.B) {
	m, s, _ := halfUsed()
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		m.Sum(s)
	}
}

func BenchmarkSeats(b *testing.B) {
	m, _, holds := halfUsed()
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		m.Seats(unit.CPUSet{}, 1, holds)
	}
}

// A scheduler filters every node for every pod, so TestAFilterDoesNotAllocate
// requires that a filter allocates no memory.
func TestAFilterDoesNotAllocate(t *testing.T) {
	m, _, holds := halfUsed()
	for i := range holds {
		holds[i].Apart = Separation(i % int(aparts))
	}
	u := m.Sum(m.Seats(unit.CPUSet{}, 1, holds))
	rnd := rand.New(rand.NewPCG(73, 74))
	for range 200 {
		c := anyDemand(rnd, m)
		if n := testing.AllocsPerRun(10, func() { u.Room(&c); u.Worth(&c) }); n != 0 {
			t.Fatalf("%+v: %v allocations", c, n)
		}
	}
}

// reportCPU adds the CPU time per operation to the results of a benchmark. On a
// busy machine the elapsed time says little. Call the returned function at the
// end.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}
