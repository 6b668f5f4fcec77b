package grow

import (
	"time"

	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// observe adds the CPU usage since the last snapshot to the means of a pool. If
// per-CPU counters are missing, it forgets the means.
func (x *decision) observe(w node.Workload, h cpus.Allocation, p Pool, caches []unit.CPUSet) Pool {
	if x.blindTo(w.ID) != "" {
		p.Blind = startOf(p.Blind, x.snap.At, true)
		p.Beside, p.Load, p.Own = map[unit.CPU]Cache{}, node.Maybe[unit.MilliCPU]{}, 0
		return p
	}
	p.Blind = time.Time{}
	beside := make(map[unit.CPU]Cache, len(caches))
	for _, set := range caches {
		at := lowest(set)
		c, seen := p.Beside[at]
		switch use := x.useOf(set) - x.useBy(w.ID, set); {
		case !seen, use > c.Use && x.now.Elapsed >= sampleFor: // a rise counts at once, a fall slowly
			c.Use = use
		default:
			c.Use = trend.Decay(c.Use, use, x.now.Elapsed, useTau)
		}
		c.Quiet = startOf(c.Quiet, x.snap.At, c.Use <= unit.CPUs(set.Len()).Percent(quietUpTo))
		beside[at] = c
	}
	p.Beside = beside
	has := h.CPUs.Union(p.More)
	load, own := x.useOf(has), x.useBy(w.ID, has)
	if mean, known := p.Load.Value(); known {
		load, own = trend.Decay(mean, load, x.now.Elapsed, useTau), trend.Decay(p.Own, own, x.now.Elapsed, useTau)
	}
	p.Load, p.Own = node.Some(load), own
	return p
}

// count adds up the LS usage of each CPU, once for all pools.
func (x *decision) count() {
	x.total = make([]unit.MilliCPU, unit.MaxCPUs)
	for id, after := range x.now.PerCPU {
		before, had := x.before.PerCPU[id]
		if !had {
			continue
		}
		for cpu, now := range after {
			if rate, ok := trend.Rate(before[cpu], now, x.now.Elapsed); ok && cpu >= 0 && cpu < unit.MaxCPUs {
				x.total[cpu] += rate
			}
		}
	}
	for _, w := range x.snap.Workloads {
		if w.Class.Sensitive() && x.now.Workload[w.ID] > negligible && !x.hasCounters(w.ID) {
			x.uncounted = w.ID
			return
		}
	}
}

// hasCounters reports whether both snapshots have per-CPU counters for a
// workload.
func (x *decision) hasCounters(id node.WorkloadID) bool {
	_, had := x.before.PerCPU[id]
	_, has := x.now.PerCPU[id]
	return had && has && x.now.Elapsed > 0
}

// blindTo returns a workload whose CPUs Tenon does not know, so that the pool
// cannot grow. It is the pool's own workload or x.uncounted. The result is
// empty if there is no such workload.
func (x *decision) blindTo(pool node.WorkloadID) node.WorkloadID {
	if !x.hasCounters(pool) {
		return pool
	}
	return x.uncounted
}

// useOf returns how much CPU all LS work has used on a set of CPUs since the
// last snapshot. useBy returns the part of one workload.
func (x *decision) useOf(set unit.CPUSet) (all unit.MilliCPU) {
	for c := range set.All() {
		all += x.total[c]
	}
	return all
}

func (x *decision) useBy(id node.WorkloadID, set unit.CPUSet) (all unit.MilliCPU) {
	before, now := x.before.PerCPU[id], x.now.PerCPU[id]
	for c := range set.All() {
		if rate, ok := trend.Rate(before[c], now[c], x.now.Elapsed); ok {
			all += rate
		}
	}
	return all
}

// nearsLimit reports whether a workload already uses about as much CPU as its
// own limit allows.
func (x *decision) nearsLimit(w node.Workload) bool {
	limit, limited := w.CPULimit.Value()
	return limited && x.now.Workload[w.ID] >= limit.Percent(atLimit)
}
