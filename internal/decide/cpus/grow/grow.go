// Package grow decides which L3 caches a pool may use in addition to its home.
// A pool that may grow gets free caches while its own are full and its own pod
// uses them. It gives them back at once when their owners claim them, or when a
// service waits.
package grow

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
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
	// Other work in the home may fill a pool whose own workload is idle. Such a
	// pool must not grow. A workload that wants CPU gets about its CPU request
	// also in a full home, so only one that uses at least busyFrom of its request
	// may need more CPUs. A workload that uses less than idleBelow of it is idle,
	// and its pool gives caches back.
	busyFrom, idleBelow = unit.Percent(75), unit.Percent(50)
	// A cache is quiet if LS work of other workloads has used at most quietUpTo
	// of it for quietFor. A pool leaves a cache if such work uses at least
	// leaveFrom of it.
	quietUpTo, quietFor = unit.Percent(30), 10 * time.Second
	leaveFrom           = unit.Percent(80)
	// A pool gives a cache back if its work could do without it: for spareFor,
	// the work would have used at most spareUpTo of the remaining CPUs, or the
	// workload of the pool has been idle.
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
	// Domain is the domain of the pool. If it changes, the state begins anew. More
	// are the CPUs beside Domain: whole L3 caches.
	Domain unit.CPUSet `json:"domain,omitzero"`
	More   unit.CPUSet `json:"more,omitzero"`
	// Load is the amount of CPU that LS work uses in Domain and More. Own is the
	// part of it that the workload of the pool uses; it is known if Load is.
	// Full is the time since which the pool has been full and its workload busy.
	// Spare is the time since which it has had spare CPUs. A zero time means
	// that it is not full or has none. A full pool may grow, and a pool with
	// spare CPUs may shrink.
	Load  node.Maybe[unit.MilliCPU] `json:"load,omitzero"`
	Own   unit.MilliCPU             `json:"own_mcpu,omitempty"`
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
	// Last is the last change. It is empty if nothing has changed.
	Last []cpus.Growth `json:"last,omitempty"`
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
	var first growth
	all := g.Allocations
	for _, w := range s.Workloads {
		h := g.Allocations[w.ID]
		// If a workload must stay apart from others, it must not grow beside
		// them.
		if h.Policy != cpus.Pool || !w.Overrides.CPUs.Grows || h.Exclusive != cpus.NotExclusive {
			continue
		}
		if next.Pools == nil {
			next.Pools, all, x.Notes = map[node.WorkloadID]Pool{}, maps.Clone(g.Allocations), maps.Clone(g.Notes)
			x.count()
		}
		p, room := x.follow(w, h, st.Pools[w.ID])
		next.Pools[w.ID] = p
		if other := x.growthOf(w.ID, h, p, room); other.before(first) {
			first = other
		}
	}
	if first.pool != "" {
		next.Pools[first.pool] = next.Pools[first.pool].grow(first)
	}
	for id, p := range next.Pools {
		h := all[id]
		h.CPUs = h.CPUs.Union(p.More)
		all[id] = h
		if len(p.Last) > 0 {
			n := x.Notes[id]
			n.Growth = p.Last
			x.Notes[id] = n
		}
	}
	x.Allocations = all
	return next, x.Grants
}

// A decision holds the input of one call of Decide, for all pools.
type decision struct {
	hold.Grants
	before, now facts.Use
	missed      map[node.WorkloadID]string
	snap        node.Snapshot
	// total is the CPU time that LS work has used on each CPU since the last
	// snapshot. uncounted is a service that total lacks, because it uses CPU
	// but has no per-CPU counters. It is empty if there is no such service.
	total     []unit.MilliCPU
	uncounted node.WorkloadID
}

// anew returns a pool that forgets how much its CPUs are used, because it has
// other CPUs now.
func (p Pool) anew() Pool {
	p.Full, p.Spare, p.Load, p.Own = time.Time{}, time.Time{}, node.Maybe[unit.MilliCPU]{}, 0
	return p
}

// follow returns the next state of one pool, and the cache into which it may
// grow in this tick. The set is empty if it must not grow.
func (x *decision) follow(w node.Workload, h cpus.Allocation, p Pool) (Pool, unit.CPUSet) {
	if p.Domain != h.Domain {
		p = Pool{Domain: h.Domain}
	}
	if p.Left.After(x.snap.At) { // it is from a clock that was ahead
		p.Left = x.snap.At
	}
	caches := neighbours(x.Map, h.Domain)
	open := x.Open.Intersect(hold.RoomBefore(x.snap.Knobs, w.Cgroup, x.snap.Topology.All()))
	p = x.observe(w, h, p, caches)
	if left := x.leave(w, p, caches, open); len(left) > 0 {
		for _, g := range left {
			p.More = p.More.Minus(g.CPUs)
		}
		p.Left, p.Last = x.snap.At, left
		return p.anew(), unit.CPUSet{}
	}
	load, known := p.Load.Value()
	if !known {
		return p.anew(), unit.CPUSet{}
	}
	has := h.CPUs.Union(p.More)
	full := load >= unit.CPUs(has.Len()).Percent(fullFrom) && p.Own >= deserved(w, has, busyFrom)
	p.Full = startOf(p.Full, x.snap.At, full && !x.nearsLimit(w))
	if room := x.room(w, h, p, caches, open); !room.Empty() {
		return p, room
	}
	last := farthest(caches, p.More)
	rest := has.Minus(last)
	idle := p.Own < deserved(w, has, idleBelow)
	p.Spare = startOf(p.Spare, x.snap.At, !last.Empty() && (idle || load <= unit.CPUs(rest.Len()).Percent(spareUpTo)))
	if !p.Spare.IsZero() && x.snap.At.Sub(p.Spare) >= spareFor {
		gave := cpus.Growth{Code: cpus.GrowthSpare, CPUs: last, Percent: int64(spareUpTo), For: spareFor}
		if idle {
			gave.Code, gave.Percent = cpus.GrowthIdle, int64(idleBelow)
		}
		p.More, p.Last = p.More.Minus(last), []cpus.Growth{gave}
		p = p.anew()
	}
	return p, unit.CPUSet{}
}

// deserved returns a share of the CPU request of a workload. A workload cannot
// use more than the CPUs that it has, so these count if they are fewer. If it
// requests nothing, negligible use counts as idle.
func deserved(w node.Workload, has unit.CPUSet, share unit.Percent) unit.MilliCPU {
	return max(min(w.Overrides.CPUs.CPU, unit.CPUs(has.Len())), negligible).Percent(share)
}

// leave returns the CPUs that a pool must give back now, with the reasons.
func (x *decision) leave(w node.Workload, p Pool, caches []unit.CPUSet, open unit.CPUSet) []cpus.Growth {
	if p.More.Empty() {
		return nil
	}
	var left []cpus.Growth
	rest, beside := p.More, unit.CPUSet{}
	give := func(g cpus.Growth) {
		left, rest = append(left, g), rest.Minus(g.CPUs)
	}
	for _, c := range caches {
		beside = beside.Union(c)
		if p.More.Intersect(c).Empty() {
			continue
		}
		if use := p.Beside[lowest(c)].Use; !open.Contains(c) {
			give(cpus.Growth{Code: cpus.GrowthTaken, CPUs: c, Taken: c.Minus(open)})
		} else if use >= unit.CPUs(c.Len()).Percent(leaveFrom) {
			give(cpus.Growth{Code: cpus.GrowthBusy, CPUs: c, Percent: percentOf(use, c)})
		}
	}
	if gone := p.More.Minus(beside); !gone.Empty() { // CPUs went offline or the topology changed
		give(cpus.Growth{Code: cpus.GrowthAway, CPUs: gone})
	}
	if rest.Empty() {
		return left
	}
	if !p.Blind.IsZero() && x.snap.At.Sub(p.Blind) >= blindFor {
		return []cpus.Growth{{Code: cpus.GrowthUncounted, CPUs: p.More, Workload: string(x.blindTo(w.ID))}}
	}
	if id := x.waitingWorkload(w.ID); id != "" {
		return []cpus.Growth{{Code: cpus.GrowthOtherWaits, CPUs: p.More, Workload: string(id)}}
	}
	return left
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
func (x *decision) room(w node.Workload, h cpus.Allocation, p Pool, caches []unit.CPUSet, open unit.CPUSet) unit.CPUSet {
	at := x.snap.At
	rests := !p.Left.IsZero() && at.Sub(p.Left) < restFor
	if p.Full.IsZero() || at.Sub(p.Full) < fullFor || rests || x.waitingWorkload(w.ID) != "" {
		return unit.CPUSet{}
	}
	most, has := len(caches), 0
	if limit, limited := w.CPULimit.Value(); limited {
		// The caches beside the home may hold the whole CPU limit, rounded up,
		// because other work may use the home.
		size := unit.CPUs(max(h.Domain.Len(), 1))
		most = min(most, int((min(limit, unit.CPUs(unit.MaxCPUs))+size-1)/size))
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
	case before.IsZero(), before.After(now): // a later time is from a clock that was ahead
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
