package run

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/textlayout"
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
	StaticBurst  Strategy = "static-burst" // a pool of one L3 cache, with the limit as a quota: cpu-policy: static-burst
	Unbounded    Strategy = "unbounded"    // no limit
	Burst        Strategy = "burst"        // a quota of twice the limit, or of Config.BurstMax if that is more
	Matched      Strategy = "matched"      // the limit as a quota, and as many threads
	Tenon        Strategy = "tenon"        // what Tenon does for best-effort jobs with the limit
	// Control is the reference cell once more.
	Control Strategy = Strategy(concurrency.Control)
)

// Strategies lists the strategies that a user can name.
var Strategies = []Strategy{Quota, PinnedSlices, PinnedBlind, Static, StaticBurst, Unbounded, Burst, Matched, Tenon}

// A Cell is one set of conditions.
type Cell struct {
	Strategy Strategy
	Jobs     int
	Limit    unit.MilliCPU // 0: none
	Memory   unit.Bytes    // 0: no limit
	Threads  int           // 0: the choice of the program
}

func (c Cell) String() string {
	parts := []string{string(c.Strategy), textlayout.Plural(c.Jobs, "job", "jobs")}
	if c.Limit > 0 {
		parts = append(parts, fmt.Sprintf("limit %g", c.Limit.Cores()))
	}
	if c.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%g GiB", float64(c.Memory)/float64(gib)))
	}
	if c.Threads > 0 {
		parts = append(parts, textlayout.Plural(c.Threads, "thread", "threads"))
	}
	return strings.Join(parts, ", ")
}

// Reference is the cell with which all others are compared. It has one job and
// no limit.
var Reference = Cell{Strategy: Unbounded, Jobs: 1}

// Combinations returns each cell of the lists once, in the order of the lists.
// It includes cells that this machine cannot run.
func (c Config) Combinations() []Cell {
	var cells []Cell
	seen := map[Cell]bool{}
	for _, g := range c.grids() {
		for _, s := range g.strategies {
			for _, limit := range g.limits {
				if (s == Unbounded) != (limit == 0) {
					continue // unbounded is the only strategy without a limit
				}
				for _, memory := range orNone(g.memory) {
					for _, threads := range orNone(g.threads) {
						for _, n := range g.jobs {
							if s == Matched {
								threads = ceil(limit)
							}
							if cell := (Cell{s, n, limit, memory, threads}); !seen[cell] {
								seen[cell] = true
								cells = append(cells, cell)
							}
						}
					}
				}
			}
		}
	}
	return cells
}

// withReference adds the reference cell and its repetition to the cells. If the
// cells run as published, it adds nothing.
func (c Config) withReference(cells []Cell) []Cell {
	if c.AsPublished || len(cells) == 0 {
		return cells
	}
	if !slices.Contains(cells, Reference) {
		cells = append(cells, Reference)
	}
	control := Reference
	control.Strategy = Control
	return append(cells, control)
}

// cells returns the cells that can run. refuse returns the reason why a cell
// cannot, or "". refused lists the other cells with their reasons, and a strategy
// that no cluster can run once.
func (c Config) cells(refuse func(Cell) string) (cells []Cell, refused []string) {
	cells, refused = harness.Choose(c.Combinations(), func(cell Cell) (any, string) {
		if why := unsuited[cell.Strategy]; c.Pods != nil && why != "" {
			return cell.Strategy, why
		}
		return cell, refuse(cell)
	})
	return c.withReference(cells), refused
}

func orNone[T int | unit.Bytes](list []T) []T {
	if len(list) == 0 {
		return []T{0}
	}
	return list
}

// ceil returns how many whole CPUs a limit needs.
func ceil(m unit.MilliCPU) int { return int((m + 999) / 1000) }

// refuse returns the reason why the machine cannot run a cell, or "".
func (c Config) refuse(cell Cell, m hardware) string {
	cpus, need := m.tested.Len(), cell.Limit*unit.MilliCPU(cell.Jobs)
	switch {
	case cell.Limit > unit.CPUs(cpus):
		return testbed.TooFewCPUs{For: "one job", Need: cell.Limit, Have: unit.CPUs(cpus)}.Error()
	case (cell.Strategy == Quota || cell.Strategy == Matched || cell.Strategy == StaticBurst) && need > unit.CPUs(cpus):
		return testbed.TooFewCPUs{For: "the jobs together", Need: need, Have: unit.CPUs(cpus)}.Error()
	case cell.Memory > 0 && m.memory > 0 && cell.Memory*unit.Bytes(cell.Jobs) > m.memory:
		return fmt.Sprintf("the jobs ask for %g GiB together, the machine has %.1f", float64(cell.Memory)*float64(cell.Jobs)/float64(gib), float64(m.memory)/float64(gib))
	case cell.Strategy == Static && cell.Limit%1000 != 0:
		return "the kubelet gives exclusive CPUs for whole numbers of CPUs only"
	case cell.Strategy == PinnedBlind && !m.uneven:
		return "every CPU here is a core of its own with the same cache: it is the same as pinned"
	case cell.Strategy == StaticBurst && !slices.ContainsFunc(testbed.Homes(m.topology, m.tested, cell.Jobs, cell.Limit), func(home unit.CPUSet) bool { return home != m.tested }):
		return "no L3 cache or NUMA node is a smaller pool with room for a job: it is the same as quota"
	case cell.Strategy == Burst && c.Burst(cell.Limit) >= unit.CPUs(cpus):
		return fmt.Sprintf("its quota of %g CPUs is no limit on %d: it is the same as unbounded", c.Burst(cell.Limit).Cores(), cpus)
	case (cell.Strategy == PinnedSlices || cell.Strategy == PinnedBlind) && c.slice(cell.Limit) > cpus:
		return testbed.TooFewCPUs{For: "a slice", Need: unit.CPUs(c.slice(cell.Limit)), Have: unit.CPUs(cpus)}.Error()
	}
	return ""
}

// Burst returns the quota of the strategy burst.
func (c Config) Burst(limit unit.MilliCPU) unit.MilliCPU { return max(2*limit, c.BurstMax) }

// slice returns the number of CPUs of a virtual worker.
func (c Config) slice(limit unit.MilliCPU) int {
	if c.Slice > 0 {
		return c.Slice
	}
	return ceil(limit)
}
