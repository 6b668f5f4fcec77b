package pick

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// halfUsed returns a machine of 256 CPUs (two sockets with eight L3 caches
// each). Random claims hold about half of the CPUs.
func halfUsed() (*Map, Seats, []cpus.Allocation) {
	rnd := rand.New(rand.NewPCG(71, 72))
	m := Compile(machine(2, 8, 8, 2))
	var holds []cpus.Allocation
	for m.Open(m.Seats(unit.CPUSet{}, 1, holds)).Len() > 128 {
		c := cpus.Request{Policy: cpus.Exclusive, CPUs: 1 + rnd.IntN(8)}
		o, _ := m.Fit(m.Seats(unit.CPUSet{}, 1, holds), c)
		holds = append(holds, o.Allocation(c))
	}
	return m, m.Seats(unit.CPUSet{}, 1, holds), holds
}

func BenchmarkRoom(b *testing.B) {
	m, s, _ := halfUsed()
	u := m.Sum(s)
	for name, c := range map[string]cpus.Request{
		"own": {Policy: cpus.Exclusive, CPUs: 4}, "whole cores": {Policy: cpus.Exclusive, CPUs: 4, Bind: cpus.OnlyWhole}, "NUMA": {Policy: cpus.Exclusive, CPUs: 8, Within: cpus.NUMA, Fewest: true},
		"pool": {Policy: cpus.Pool, CPU: 4000}, "pool in L3": {Policy: cpus.Pool, CPU: 4000, Within: cpus.L3},
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
	for name, c := range map[string]cpus.Request{"own": {Policy: cpus.Exclusive, CPUs: 4}, "own 24": {Policy: cpus.Exclusive, CPUs: 24}, "pool": {Policy: cpus.Pool, CPU: 4000}} {
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
	for name, c := range map[string]cpus.Request{
		"4": {Policy: cpus.Exclusive, CPUs: 4}, "16": {Policy: cpus.Exclusive, CPUs: 16}, "64": {Policy: cpus.Exclusive, CPUs: 64}, "seats": {Policy: cpus.Shared, CPUs: 4, CPU: 1000},
		"pool": {Policy: cpus.Pool, CPU: 4000},
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
		holds[i].Exclusive = cpus.PCPULevel
	}
	s := m.Seats(unit.CPUSet{}, 0, holds)
	u := m.Sum(s)
	four, all := cpus.Request{Policy: cpus.Exclusive, CPUs: 4, Exclusive: cpus.PCPULevel}, cpus.Request{Policy: cpus.Exclusive, CPUs: m.Open(s).Len(), Exclusive: cpus.PCPULevel}
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
		holds[i].Exclusive = cpus.ExclusivePolicy(i % int(cpus.ExclusivePolicies))
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
