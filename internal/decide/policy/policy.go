// Package policy decides what a node's knobs should be. Decide is the whole
// brain of a node: a pure function of configuration, memory and snapshot. Each
// policy has a file of its own, owns its knobs alone, and gives a reason with
// each want.
package policy

import (
	"slices"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/decide/contest"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config is what the owner of the node asks for. The zero Config asks for
// nothing: every knob that Tenon touched is released.
type Config struct {
	// Pool is the CPUs that the policies share out.
	Pool facts.Pool `json:"-"` // see configForm
	// CPUQOS gives latency-sensitive work the CPU first.
	CPUQOS CPUQOS `json:"cpu_qos,omitzero"`
	// Suppress bounds the CPU of best-effort work by a watermark.
	Suppress Suppress `json:"suppress,omitzero"`
	// Memory protects and limits memory by class.
	Memory memory.Config `json:"memory_qos,omitzero"`
	// Cache divides L3 caches and memory bandwidth by class.
	Cache cache.Config `json:"cache_qos,omitzero"`
	// IO limits and weighs block I/O by class.
	IO blockio.Config `json:"io,omitzero"`
	// Burst lets latency-sensitive work exceed its CPU limit for a while.
	Burst Burst `json:"burst,omitzero"`
	// Overcommit says what batch work may count on.
	Overcommit Overcommit `json:"overcommit,omitzero"`
	// Evict ends best-effort work when memory or CPU run short.
	Evict evict.Config `json:"evict,omitzero"`
}

// State is what policies remember from tick to tick: plain data.
type State struct {
	Use facts.Use `json:"use"`
	// Growth is how much more CPU best-effort work may get than it has: saved
	// up over time, used up by growing.
	Growth unit.MilliCPU `json:"growth_mcpu,omitempty"`
	// Ladder is which means isolates on the CPU.
	Ladder ladder `json:"ladder,omitzero"`
	// Strain is how latency-sensitive work fares, and Giving what best-effort
	// work gives up for it.
	SLO        slo.Tracker `json:"strain,omitzero"`
	CPUBackOff giving      `json:"giving,omitzero"`
	// Squeeze is what best-effort work gives up of caches and memory bandwidth.
	CacheBackOff cache.BackOff `json:"squeeze,omitzero"`
	// Pins are the CPUs that LSR and LSE workloads have as their own.
	Pins map[node.WorkloadID]unit.CPUSet `json:"pins,omitempty"`
	// Lending is what quota burst has lent.
	Lending lending `json:"lending,omitzero"`
	// Batch is what batch work is promised.
	Batch batch `json:"batch,omitzero"`
	// Evictions are the best-effort workloads that are to end, and what leads
	// to more of them.
	Evictions evict.State `json:"evictions,omitzero"`
}

// Missed are the workloads whose SLO is violated, and how.
func (st State) Missed() map[node.WorkloadID]string {
	var all map[node.WorkloadID]string
	for _, m := range st.SLO.Missed() {
		if all == nil {
			all = map[node.WorkloadID]string{}
		}
		all[m.Workload] = m.Reason
	}
	return all
}

// Decide returns what every knob should be, and the memory for the next call.
func Decide(c Config, st State, s node.Snapshot) (State, []plan.Want) {
	l := facts.LayoutOf(s)
	next := State{Use: st.Use.Observe(s), SLO: st.SLO.Observe(s)}
	next.CPUBackOff = st.CPUBackOff.follow(next.SLO, s.At)
	next.Batch = st.Batch.offer(c.Overcommit, c.Pool, next.Use.Elapsed, s)
	own := pin(c.Pool, c.Suppress.KeepPercent(), st.Pins, s)
	next.Pins = own.of
	var rungs, bounds, shares, ends []plan.Want
	next.Ladder, rungs = st.Ladder.climb(c.CPUQOS, l, s)
	next.Growth, bounds = suppress(c.Suppress, c.Pool, st.Growth, l, next.Use, next.CPUBackOff, own, next.Ladder.LS.siblings(s.Topology), s)
	burst := newBurster(c.Burst, st.Lending, next.Use, own, s)
	limits := limit(&burst, l, s, own, bounds)
	next.Lending = burst.next
	if len(c.Cache.Classes) > 0 || slices.ContainsFunc(s.Workloads, cache.OwnsControl) {
		next.CacheBackOff = st.CacheBackOff.Follow(next.SLO, s)
		shares = cache.Decide(c.Cache, next.CacheBackOff, s)
	}
	next.Evictions, ends = evict.Decide(c.Evict, st.Evictions, l, next.Use, s)
	// In one piece: to grow it by and by would be a fifth of what a turn allocates.
	wants := slices.Concat(rungs, cpuQOS(c.CPUQOS, next.Ladder.Status.Rung, l, s), bounds, bind(own, l, s), limits,
		memory.Decide(c.Memory, s), shares, blockio.Decide(c.IO, s), ends)
	wants = contest.Hold(s, append(wants, orphans(l, s, wants)...))
	orders, slotless := isolation.Orders(s, l.RootOf, wants)
	next.Ladder.Status.Slotless = slotless
	return next, append(wants, orders...)
}

// orphans releases every knob that Tenon has touched and that no policy asks
// for any more, such as those of a workload that left the rules.
func orphans(l facts.Layout, s node.Snapshot, wants []plan.Want) []plan.Want {
	if len(s.Knobs.Before) == 0 {
		return nil
	}
	wanted := make(map[node.Knob]bool, len(wants))
	for _, w := range wants {
		wanted[w.Knob] = true
	}
	var left []node.Knob
	for k := range s.Knobs.Before {
		if !wanted[k] {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, node.Knob.Compare)
	var released []plan.Want
	for _, k := range left {
		_, inBE := l.RootAbove(k.Cgroup)
		released = append(released, plan.Want{Intent: plan.Release, Knob: k, Owner: plan.OwnerPolicy, Reason: "no rule asks for it any more", BE: inBE})
	}
	return released
}
