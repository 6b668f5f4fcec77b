package evict

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// CPUConfig configures the eviction of BE work when CPU is short.
type CPUConfig struct {
	// BE starves if its CPU bound is at most SatisfactionLower percent of its
	// CPU requests (cpuEvictBESatisfactionLowerPercent). Tenon then evicts
	// workloads until the bound is at least SatisfactionUpper percent of the
	// remaining requests (cpuEvictBESatisfactionUpperPercent). Both values are
	// set, or both are 0. If they are 0, this eviction is disabled.
	SatisfactionLower unit.Percent `json:"cpuEvictBESatisfactionLowerPercent,omitempty"`
	SatisfactionUpper unit.Percent `json:"cpuEvictBESatisfactionUpperPercent,omitempty"`
	// UsageThreshold is a percentage of the bound of BE
	// (cpuEvictBEUsageThresholdPercent). BE starves only if it uses at least
	// that much.
	UsageThreshold unit.Percent `json:"cpuEvictBEUsageThresholdPercent,omitempty"`
	// Eviction by CPU usage starts when ThresholdPercent of the node's CPUs are
	// in use (cpuEvictThresholdPercent). It ends workloads until LowerPercent
	// are in use (cpuEvictLowerPercent). A threshold of 0 disables it.
	ThresholdPercent unit.Percent `json:"cpuEvictThresholdPercent,omitempty"`
	LowerPercent     unit.Percent `json:"cpuEvictLowerPercent,omitempty"`
	// BE starves only if the mean over Window shows it. Eviction by CPU usage
	// starts only if the usage has been above the threshold for Window without
	// interruption (cpuEvictTimeWindowSeconds).
	Window time.Duration `json:"window_ns,omitempty"`
}

func (c CPUConfig) satisfies() bool { return c.SatisfactionLower > 0 && c.SatisfactionUpper > 0 }
func (c CPUConfig) bounds() bool    { return c.ThresholdPercent > 0 }

// satisfy evicts BE work if BE gets too little of the CPU that it requests. The
// remaining workloads can then make progress.
func (x *evictor) satisfy() {
	c := x.CPU
	if !c.satisfies() {
		return
	}
	var request, used unit.MilliCPU
	var missing []string
	for _, w := range x.snap.Workloads {
		if w.Class != node.BE || x.ended(w) {
			continue
		}
		asks, known := w.CPURequest.Value()
		if !known || !w.Usage.CPU.Known() {
			missing = append(missing, string(w.ID))
		}
		request += asks
		used += x.use.Workload[w.ID]
	}
	if len(missing) > 0 {
		const most = 3
		x.leave("cpu: no satisfaction without requests.cpu and the use of " + strings.Join(missing[:min(len(missing), most)], ", "))
		return
	}
	limit := allowance(x.Layout, x.snap)
	now := balance{Bound: limit, Used: used, Request: request}
	x.next.Satisfied = x.was.Satisfied.next(now, x.elapsed, c.Window)
	mean, full := x.next.Satisfied.mean(c.Window)
	// now.Used was measured under the bound of the last tick.
	now.Bound = min(limit, x.was.Satisfied.Last)
	if x.held || !full || !mean.isStarved(c) || !now.isStarved(c) || limit*100 > request*unit.MilliCPU(c.SatisfactionLower) {
		return
	}
	// Evict until the bound is SatisfactionUpper percent of the requests that
	// remain. Koordinator's formula, request × upper − limit, evicts too little
	// for that.
	bound := max(limit, mean.Bound)
	need := request - bound*100/unit.MilliCPU(c.SatisfactionUpper)
	if need <= 0 {
		return
	}
	reason := fmt.Sprintf("BE may use %v of the %v that it counts on, %v or less for %v: %v must go", bound, request, c.SatisfactionLower, c.Window, need)
	x.choose(CauseCPU, reason, int64(need),
		func(w node.Workload) int64 { return int64(w.CPURequest.Or(0)) },
		func(w node.Workload) int64 { return int64(x.use.Workload[w.ID]) }, milli)
	x.next.Satisfied = satisfaction{}
}

// unload evicts BE work if the usage of the node's CPUs is too high.
func (x *evictor) unload() {
	c := x.CPU
	if !c.bounds() {
		return
	}
	all := x.snap.Topology.All()
	var busy unit.MilliCPU
	known := !all.Empty()
	for cpu := range all.All() {
		m, rated := x.use.CPU[cpu]
		busy, known = busy+m, known && rated
	}
	if !known {
		x.leave("cpu: the use of the CPUs is unknown")
		return
	}
	capacity := unit.CPUs(all.Len())
	over := busy*100 >= capacity*unit.MilliCPU(c.ThresholdPercent)
	x.next.Busy = x.was.Busy.next(over, x.elapsed)
	if x.held || !over || x.next.Busy.For < c.Window {
		return
	}
	need := busy - capacity.Percent(c.LowerPercent)
	used := func(w node.Workload) int64 { return int64(x.use.Workload[w.ID]) }
	reason := fmt.Sprintf("%v of %v are in use, %v or more for %v: %v must go", busy, capacity, c.ThresholdPercent, c.Window, need)
	x.choose(CauseCPU, reason, int64(need), used, used, milli)
	x.next.Busy = conditionTime{}
}

func milli(n int64) string { return unit.MilliCPU(n).String() }

// allowance returns the CPU that all BE work together may use, according to its
// quotas and CPU sets.
func allowance(l facts.Layout, s node.Snapshot) unit.MilliCPU {
	all := s.Topology.All()
	free := len(l.Shared) > 0 || len(l.Roots) == 0
	cpus := unit.CPUSet{}
	var quota unit.MilliCPU
	for _, m := range l.Roots {
		q, known := s.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUMax}].(node.CPUMax)
		if known && facts.IsQuota(q) {
			quota += facts.MilliOf(q)
		} else {
			free = true
		}
		set, _ := s.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUs}].(node.CPUs)
		if set.Set.Empty() {
			set.Set = all
		}
		cpus = cpus.Union(set.Set.Intersect(all))
	}
	if len(l.Shared) > 0 || len(l.Roots) == 0 {
		cpus = all
	}
	if free {
		return unit.CPUs(cpus.Len())
	}
	return min(quota, unit.CPUs(cpus.Len()))
}
