package sweep

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/layout"
	"tenon.sh/tenon/internal/model/unit"
)

// A Strategy is a way to divide the CPUs of the machine among jobs.
type Strategy string

// The strategies.
const (
	Quota        Strategy = "quota"        // the limit as a quota, on all CPUs: the default of Kubernetes
	PinnedSlices Strategy = "pinned"       // virtual workers of neighbouring CPUs, without a quota
	PinnedBlind  Strategy = "pinned-blind" // the same, but the CPUs are chosen at random
	Static       Strategy = "static"       // exclusive CPUs; a job that finds none waits
	Unbounded    Strategy = "unbounded"    // no limit
	Burst        Strategy = "burst"        // a quota of twice the limit, or of a number of CPUs if that is more
	Matched      Strategy = "matched"      // the limit as a quota, and as many threads
	Tenon        Strategy = "tenon"        // what Tenon does for best-effort jobs with the limit
	// Control repeats the reference cell.
	Control Strategy = Strategy(concurrency.Control)
)

// Strategies lists the strategies that a user can name.
var Strategies = []Strategy{Quota, PinnedSlices, PinnedBlind, Static, Unbounded, Burst, Matched, Tenon}

// A Cell is one set of conditions.
type Cell struct {
	Strategy Strategy
	Jobs     int
	Limit    unit.MilliCPU // 0: none
	Memory   unit.Bytes    // 0: no limit
	Threads  int           // 0: the choice of the program
}

func (c Cell) String() string {
	parts := []string{string(c.Strategy), layout.Plural(c.Jobs, "job", "jobs")}
	if c.Limit > 0 {
		parts = append(parts, fmt.Sprintf("limit %g", c.Limit.Cores()))
	}
	if c.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%g GiB", float64(c.Memory)/float64(gib)))
	}
	if c.Threads > 0 {
		parts = append(parts, layout.Plural(c.Threads, "thread", "threads"))
	}
	return strings.Join(parts, ", ")
}

// reference is the cell with which all others are compared: one job, no limit.
var reference = Cell{Strategy: Unbounded, Jobs: 1}

// cells returns the cells that this machine can run, and says why it cannot run
// the others. They include the reference and its repetition, unless the cells
// are run as published.
func (c Config) cells(m machine) (cells []Cell, refused []string) {
	seen := map[Cell]bool{}
	add := func(cell Cell) {
		if seen[cell] {
			return
		}
		seen[cell] = true
		if why := c.refuse(cell, m); why != "" {
			refused = append(refused, fmt.Sprintf("%v: %s", cell, why))
			return
		}
		cells = append(cells, cell)
	}
	for _, g := range c.grids() {
		for _, s := range g.strategies {
			for _, limit := range g.limits {
				if (s == Unbounded) != (limit == 0) {
					continue // without a limit, there is no number by which to divide
				}
				for _, memory := range orNone(g.memory) {
					for _, threads := range orNone(g.threads) {
						for _, n := range g.jobs {
							if s == Matched {
								threads = ceil(limit)
							}
							add(Cell{s, n, limit, memory, threads})
						}
					}
				}
			}
		}
	}
	if !c.AsPublished && len(cells) > 0 {
		add(reference)
		control := reference
		control.Strategy = Control
		add(control)
	}
	return cells, refused
}

func orNone[T int | unit.Bytes](list []T) []T {
	if len(list) == 0 {
		return []T{0}
	}
	return list
}

// ceil returns how many whole CPUs a limit needs.
func ceil(m unit.MilliCPU) int { return int((m + 999) / 1000) }

// refuse returns the reason why the machine cannot run a cell; empty: it can.
func (c Config) refuse(cell Cell, m machine) string {
	cpus, need := m.tested.Len(), cell.Limit*unit.MilliCPU(cell.Jobs)
	switch {
	case cell.Limit > unit.CPUs(cpus):
		return fmt.Sprintf("one job asks for %g CPUs, the machine has %d", cell.Limit.Cores(), cpus)
	case (cell.Strategy == Quota || cell.Strategy == Matched) && need > unit.CPUs(cpus):
		return fmt.Sprintf("the jobs ask for %g CPUs together, the machine has %d", need.Cores(), cpus)
	case cell.Memory > 0 && m.memory > 0 && cell.Memory*unit.Bytes(cell.Jobs) > m.memory:
		return fmt.Sprintf("the jobs ask for %g GiB together, the machine has %.1f", float64(cell.Memory)*float64(cell.Jobs)/float64(gib), float64(m.memory)/float64(gib))
	case cell.Strategy == Static && cell.Limit%1000 != 0:
		return "the kubelet gives exclusive CPUs for whole numbers of CPUs only"
	case cell.Strategy == PinnedBlind && !m.uneven:
		return "every CPU here is a core of its own with the same cache: it is the same as pinned"
	case cell.Strategy == Burst && c.burst(cell.Limit) >= unit.CPUs(cpus):
		return fmt.Sprintf("its quota of %g CPUs is no limit on %d: it is the same as unbounded", c.burst(cell.Limit).Cores(), cpus)
	case (cell.Strategy == PinnedSlices || cell.Strategy == PinnedBlind) && c.slice(cell.Limit) > cpus:
		return fmt.Sprintf("a slice of %d CPUs is larger than the machine", c.slice(cell.Limit))
	}
	return ""
}

// burst returns the quota of the strategy burst.
func (c Config) burst(limit unit.MilliCPU) unit.MilliCPU { return max(2*limit, c.BurstMax) }

// slice returns the number of CPUs of a virtual worker.
func (c Config) slice(limit unit.MilliCPU) int {
	if c.Slice > 0 {
		return c.Slice
	}
	return ceil(limit)
}
