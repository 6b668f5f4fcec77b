// Package grow decides which L3 caches a pool may use in addition to its home.
// A pool that may grow gets free caches while its own are full. It gives them
// back at once when their owners claim them, or when a service waits.
package grow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A pool grows slowly and shrinks at once. Between the limit to grow and the
// limit to shrink there is a gap, so that a pool does not grow and shrink in
// turns.
const (
	// A pool is full if LS work has used at least fullFrom of its CPUs for
	// fullFor. If a workload uses atLimit of its own CPU limit, its pool does
	// not grow for it, because more CPUs would not help it.
	fullFrom, fullFor = unit.Percent(90), 3 * time.Second
	atLimit           = unit.Percent(95)
	// A cache is quiet if LS work of other workloads has used at most quietUpTo
	// of it for quietFor. A pool leaves a cache if such work uses at least
	// leaveFrom of it.
	quietUpTo, quietFor = unit.Percent(30), 10 * time.Second
	leaveFrom           = unit.Percent(80)
	// A pool gives a cache back if its work could do without it: for spareFor,
	// the work would have used at most spareUpTo of the remaining CPUs.
	spareUpTo, spareFor = unit.Percent(70), time.Minute
	// restFor is the time for which a pool does not grow after it had to leave a
	// cache. A service that waited is then not disturbed again at once.
	restFor = time.Minute
	// negligible is a CPU usage. If a service uses no more than that, Tenon
	// need not know on which CPUs it runs.
	negligible unit.MilliCPU = 50
	// If the per-CPU counters are missing for blindFor, a pool gives back all
	// caches beside its home. One failed reading does not last that long.
	blindFor = 2 * time.Second
	// useTau is the time constant of the means of CPU usage. A higher sample
	// replaces the mean of a cache at once if it spans at least sampleFor.
	useTau, sampleFor = time.Second, 500 * time.Millisecond
)

// A State says which caches each pool has beside its home, and for how long the
// pool has been too small or too large.
type State struct {
	Pools map[node.WorkloadID]Pool `json:"pools,omitempty"`
}

// A Pool is the state of one pool that may grow.
type Pool struct {
	// Home is the home of the pool. If it changes, the state begins anew. More
	// are the CPUs beside Home: whole L3 caches.
	Home unit.CPUSet `json:"home,omitzero"`
	More unit.CPUSet `json:"more,omitzero"`
	// Load is the amount of CPU that LS work uses in Home and More. Full is the
	// time since which the pool has been full. Spare is the time since which it
	// has had spare CPUs. A zero time means that it is not full or has none. A
	// full pool may grow, and a pool with spare CPUs may shrink.
	Load  node.Maybe[unit.MilliCPU] `json:"load,omitzero"`
	Full  time.Time                 `json:"full,omitzero"`
	Spare time.Time                 `json:"spare,omitzero"`
	// Left is the time at which the pool last had to leave a cache.
	Left time.Time `json:"left,omitzero"`
	// Blind is the time since which the CPU usage has been unknown because
	// per-CPU counters are missing. It is zero if the usage is known.
	Blind time.Time `json:"blind,omitzero"`
	// Beside holds the other caches of the NUMA node. The key is the lowest CPU
	// of the cache.
	Beside map[unit.CPU]Cache `json:"beside,omitempty"`
	// Why is the reason of the last change. It is empty if nothing has changed.
	Why string `json:"why,omitempty"`
}

// A Cache is an L3 cache into which a pool may grow.
type Cache struct {
	// Use is the amount of CPU that LS work of other workloads uses in the
	// cache. Quiet is the time since which Use has been low, or zero.
	Use   unit.MilliCPU `json:"use_mcpu,omitempty"`
	Quiet time.Time     `json:"quiet,omitzero"`
}

// Decide adds to each pool that may grow the caches that it has beside its
// home. before holds the CPU usage at the last snapshot, and now that at s.
// missed holds the workloads that wait longer than their objective.
func Decide(st State, g hold.Grants, before, now facts.Use, missed map[node.WorkloadID]string, s node.Snapshot) (State, hold.Grants) {
	if g.Map == nil {
		return State{}, g
	}
	x := &decision{Grants: g, before: before, now: now, missed: missed, snap: s}
	var next State
	shared := g.Shared
	for _, w := range s.Workloads {
		h, held := g.Shared[w.ID]
		// If a workload must stay apart from others, it must not grow beside
		// them.
		if !held || h.Grade != pick.Pooled || !w.Overrides.CPUs.Grows || h.Apart != pick.Anywhere {
			continue
		}
		if next.Pools == nil {
			next.Pools, shared, x.How = map[node.WorkloadID]Pool{}, maps.Clone(g.Shared), maps.Clone(g.How)
			x.count()
		}
		p := x.follow(w, h, st.Pools[w.ID])
		h.CPUs = h.CPUs.Union(p.More)
		next.Pools[w.ID], shared[w.ID] = p, h
		if p.Why != "" {
			x.How[w.ID] += "; " + p.Why
		}
	}
	x.Shared = shared
	return next, x.Grants
}

// A decision holds the input of one call of Decide, for all pools.
type decision struct {
	hold.Grants
	before, now facts.Use
	missed      map[node.WorkloadID]string
	snap        node.Snapshot
	grew        bool // a pool has grown in this tick; only one may grow, so that the next tick sees the effect
	// total is the CPU time that LS work has used on each CPU since the last
	// snapshot. uncounted is a service that total lacks, because it uses CPU
	// but has no per-CPU counters. It is empty if there is no such service.
	total     []unit.MilliCPU
	uncounted node.WorkloadID
}

// follow returns the next state of one pool.
func (x *decision) follow(w node.Workload, h pick.Hold, p Pool) Pool {
	if p.Home != h.Home {
		p = Pool{Home: h.Home}
	}
	caches := neighbours(x.Map, h.Home)
	open := x.Open.Intersect(hold.RoomBefore(x.snap.Knobs, w.Cgroup, x.snap.Topology.All()))
	p = x.observe(w, h, p, caches)
	if left, why := x.leave(w, p, caches, open); !left.Empty() {
		p.More = p.More.Minus(left)
		p.Full, p.Spare, p.Load, p.Left, p.Why = time.Time{}, time.Time{}, node.Maybe[unit.MilliCPU]{}, x.snap.At, why
		return p
	}
	load, known := p.Load.Value()
	if !known {
		p.Full, p.Spare = time.Time{}, time.Time{}
		return p
	}
	has := h.CPUs.Union(p.More)
	p.Full = startOf(p.Full, x.snap.At, load >= unit.CPUs(has.Len()).Percent(fullFrom) && !x.nearsLimit(w))
	if c := x.room(w, h, p, caches, open); !c.Empty() {
		p.Why = fmt.Sprintf("grew into CPUs %v: latency-sensitive work used %d %% of its CPUs for %v, and %d %% of these for %v",
			c, percentOf(load, has), fullFor, percentOf(p.Beside[lowest(c)].Use, c), quietFor)
		p.More, p.Full, p.Spare, p.Load = p.More.Union(c), time.Time{}, time.Time{}, node.Maybe[unit.MilliCPU]{}
		x.grew = true
		return p
	}
	last := farthest(caches, p.More)
	rest := has.Minus(last)
	p.Spare = startOf(p.Spare, x.snap.At, !last.Empty() && load <= unit.CPUs(rest.Len()).Percent(spareUpTo))
	if !p.Spare.IsZero() && x.snap.At.Sub(p.Spare) >= spareFor {
		p.Why = fmt.Sprintf("gave back CPUs %v: the rest would have been used to %d %% at most for %v", last, spareUpTo, spareFor)
		p.More, p.Full, p.Spare, p.Load = p.More.Minus(last), time.Time{}, time.Time{}, node.Maybe[unit.MilliCPU]{}
	}
	return p
}

// observe adds the CPU usage since the last snapshot to the means of a pool. If
// per-CPU counters are missing, it forgets the means.
func (x *decision) observe(w node.Workload, h pick.Hold, p Pool, caches []unit.CPUSet) Pool {
	if x.blindTo(w.ID) != "" {
		p.Blind = startOf(p.Blind, x.snap.At, true)
		p.Beside, p.Load = map[unit.CPU]Cache{}, node.Maybe[unit.MilliCPU]{}
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
	load := x.useOf(h.CPUs.Union(p.More))
	if mean, known := p.Load.Value(); known {
		load = trend.Decay(mean, load, x.now.Elapsed, useTau)
	}
	p.Load = node.Some(load)
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

// leave returns the CPUs that a pool must give back now, and the reason.
func (x *decision) leave(w node.Workload, p Pool, caches []unit.CPUSet, open unit.CPUSet) (left unit.CPUSet, why string) {
	if p.More.Empty() {
		return left, ""
	}
	var reasons []string
	beside := unit.CPUSet{}
	for _, c := range caches {
		beside = beside.Union(c)
		if p.More.Intersect(c).Empty() {
			continue
		}
		reason := ""
		if use := p.Beside[lowest(c)].Use; !open.Contains(c) {
			reason = fmt.Sprintf("CPUs %v: others own %v or keep them", c, c.Minus(open))
		} else if use >= unit.CPUs(c.Len()).Percent(leaveFrom) {
			reason = fmt.Sprintf("CPUs %v: other services use %d %% of them", c, percentOf(use, c))
		}
		if reason != "" {
			left, reasons = left.Union(c), append(reasons, reason)
		}
	}
	if gone := p.More.Minus(beside); !gone.Empty() { // CPUs went offline or the topology changed
		left, reasons = left.Union(gone), append(reasons, fmt.Sprintf("CPUs %v: they are in no cache beside its home any more", gone))
	}
	if !p.Blind.IsZero() && x.snap.At.Sub(p.Blind) >= blindFor && left != p.More {
		left, reasons = p.More, []string{fmt.Sprintf("CPUs %v: the use of each CPU by %s is not counted", p.More, x.blindTo(w.ID))}
	}
	if id := x.waitingWorkload(w.ID); id != "" && left != p.More {
		left, reasons = p.More, []string{fmt.Sprintf("CPUs %v: %s waits longer than its objective", p.More, id)}
	}
	return left.Intersect(p.More), "gave back " + strings.Join(reasons, ", ")
}

// waitingWorkload returns a workload other than but that waits longer than its
// objective. If there are several, it returns the first by name, and if there
// are none, "".
func (x *decision) waitingWorkload(but node.WorkloadID) node.WorkloadID {
	for _, id := range slices.Sorted(maps.Keys(x.missed)) {
		if id != but {
			return id
		}
	}
	return ""
}

// room returns the L3 cache into which a pool grows now: the nearest one that
// is open and quiet. If the pool must not grow now, the result is empty.
func (x *decision) room(w node.Workload, h pick.Hold, p Pool, caches []unit.CPUSet, open unit.CPUSet) unit.CPUSet {
	at := x.snap.At
	rests := !p.Left.IsZero() && at.Sub(p.Left) < restFor
	if p.Full.IsZero() || at.Sub(p.Full) < fullFor || rests || x.grew || x.waitingWorkload(w.ID) != "" {
		return unit.CPUSet{}
	}
	most, has := len(caches), 0
	if limit, limited := w.CPULimit.Value(); limited {
		// The caches beside the home may hold the whole CPU limit, rounded up,
		// because other work may use the home.
		size := unit.CPUs(max(h.Home.Len(), 1))
		most = min(most, int((limit+size-1)/size))
	}
	for _, c := range caches {
		if p.More.Contains(c) {
			has++
		}
	}
	if has >= most {
		return unit.CPUSet{}
	}
	for _, c := range caches {
		quiet := p.Beside[lowest(c)].Quiet
		if !p.More.Contains(c) && open.Contains(c) && !quiet.IsZero() && at.Sub(quiet) >= quietFor {
			return c
		}
	}
	return unit.CPUSet{}
}

// farthest returns the cache farthest from home among those that a pool has.
// caches begins with the nearest one.
func farthest(caches []unit.CPUSet, more unit.CPUSet) unit.CPUSet {
	for _, c := range slices.Backward(caches) {
		if !more.Intersect(c).Empty() {
			return c.Intersect(more)
		}
	}
	return unit.CPUSet{}
}

// startOf returns since when a condition has held. It returns zero if the
// condition does not hold.
func startOf(before, now time.Time, holds bool) time.Time {
	switch {
	case !holds:
		return time.Time{}
	case before.IsZero():
		return now
	}
	return before
}

func lowest(set unit.CPUSet) unit.CPU {
	for c := range set.All() {
		return c
	}
	return -1
}

// percentOf returns the CPU usage m as a percentage of a set of CPUs.
func percentOf(m unit.MilliCPU, set unit.CPUSet) int64 {
	return int64(m) * 100 / cmp.Or(int64(unit.CPUs(set.Len())), 1)
}
