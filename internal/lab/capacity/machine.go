// Package capacity predicts how long a batch job takes beside other jobs, on the
// measured machine and on other machines of the same kind. The parameters of its model
// are the CPU time of a job alone, the shares of speed that a busy sibling and a busy
// machine take, and the growth of the speed with the CPUs of a job. The package
// predicts only near what was measured, and gives the reason for each refusal.
package capacity

import (
	"fmt"
	"math"
)

// A Machine is the size of a node.
type Machine struct {
	CPUs, Cores int
}

// Check returns an error unless each core has the same number of CPUs.
func (m Machine) Check() error {
	if m.CPUs < 1 || m.Cores < 1 || m.CPUs%m.Cores != 0 {
		return fmt.Errorf("%d CPUs on %d cores: want at least one core, and the same number of CPUs on each", m.CPUs, m.Cores)
	}
	return nil
}

// A Cell is a way to run jobs on a machine.
type Cell struct {
	Jobs  int
	Limit float64 // CPUs of a job; 0: no limit
	// Threads is the number of threads that a job runs at once; 0: as many as the
	// machine has CPUs.
	Threads int
	// If Apart is set, each job has CPUs of its own. If there are enough cores,
	// no other job has CPUs on the same cores. If Apart is not set, the threads
	// of all jobs run on all CPUs, and a quota stops them.
	Apart bool
}

// A point holds the inputs of the model for a cell on a machine.
type point struct {
	cpus    float64 // CPUs that a job has on average
	total   float64 // CPUs that all jobs have together
	sibling float64 // share of the busy time in which a sibling is busy, too
	busy    float64 // share of the time in which a core is busy, mean over all cores
}

// CPUs returns how many CPUs a job of the cell has on average.
func (c Cell) CPUs(m Machine) float64 { return c.pointOn(m).cpus }

// pointOn returns the point of the cell on a machine.
func (c Cell) pointOn(m Machine) point {
	all, jobs := float64(m.CPUs), float64(max(c.Jobs, 1))
	threads := all
	if c.Threads > 0 {
		threads = min(float64(c.Threads), all)
	}
	p := point{cpus: min(threads, all/jobs)}
	if c.Limit > 0 {
		p.cpus = min(p.cpus, c.Limit)
	}
	p.total = p.cpus * jobs
	together := min(all, jobs*threads) // CPUs that run at the same time
	if c.Apart {
		together = p.total
	}
	cores := float64(m.Cores)
	if each := all / cores; together > cores && each > 1 {
		p.sibling = min(1, each/(each-1)*(together-cores)/together)
	}
	p.busy = min(1, min(together, cores)/cores*p.total/together)
	return p
}

// The parameters of the model.
//
//	work       the CPU time of a job on one CPU of an idle machine
//	sibling    the share of speed that a CPU loses while its sibling is busy
//	clock      the share of speed that a CPU loses while all cores are busy,
//	           because the clock is slower, and caches and memory are shared
//	serial     a parameter of Gunther's law of scalability, like coherence:
//	coherence  n CPUs multiply the speed that a job has with one CPU by
//	           n / (1 + serial (n−1) + coherence n (n−1))
const (
	work = iota // its logarithm, because it is a factor
	sibling
	clock
	serial
	coherence
	parameters
)

// seconds returns the logarithm of the time of a job at this point. It returns
// false if the parameters give no positive speed there.
func (p point) seconds(of [parameters]float64) (float64, bool) {
	more := max(0, p.cpus-1)
	scale := 1 + of[serial]*more + of[coherence]*p.cpus*more
	slow := (1 - of[sibling]*p.sibling) * (1 - of[clock]*p.busy)
	if scale <= 0 || slow <= 0 {
		return 0, false
	}
	return of[work] - math.Log(p.cpus) + math.Log(scale) - math.Log(slow), true
}

// column returns how strongly a parameter acts at this point, as a number.
// determinedBy compares these numbers between points.
func (p point) column(parameter int) float64 {
	more := max(0, p.cpus-1)
	return [parameters]float64{1, p.sibling, p.busy, more / (1 + more), p.cpus * more / (1 + p.cpus*more)}[parameter]
}
