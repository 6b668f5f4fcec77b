// Package policy decides the values of a node's knobs: Decide calls each policy and
// joins the wants. It is a pure function of configuration, state and snapshot. Each
// policy has a package of its own. It is the only owner of its knobs, and gives a
// reason with each want.
package policy

import (
	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/decide/cpus/bind"
	"tenon.sh/tenon/internal/decide/cpus/grow"
	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/seat"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/reclaim"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/decide/writeconflict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config is the configuration of the policies. The zero Config wants nothing,
// so every knob that Tenon changed is released.
type Config struct {
	// NodeCPUs are the CPUs that the policies divide.
	NodeCPUs facts.NodeCPUs `json:"node_cpus,omitzero"`
	// CPUQOS gives LS work the CPU before BE work.
	CPUQOS isolation.Config `json:"cpu_qos,omitzero"`
	// Suppress limits the CPU of BE work.
	Suppress suppress.Config `json:"suppress,omitzero"`
	// Memory protects and limits memory by class.
	Memory memory.Config `json:"memory_qos,omitzero"`
	// Reclaim keeps memory free for services by what the kernel reclaims from BE work.
	Reclaim reclaim.Config `json:"reclaim,omitzero"`
	// Cache divides L3 caches and memory bandwidth by class.
	Cache cache.Config `json:"cache_qos,omitzero"`
	// IO sets limits, weights and latency targets of block I/O by class.
	IO blockio.Config `json:"io,omitzero"`
	// Burst lets LS work exceed its CPU limit for a limited time.
	Burst burst.Config `json:"burst,omitzero"`
	// Overcommit computes the batch resources.
	Overcommit overcommit.Config `json:"overcommit,omitzero"`
	// Evict evicts BE work when memory or CPU is short.
	Evict evict.Config `json:"evict,omitzero"`
	// Seats gives BE work that has a CPU limit whole CPUs, in place of time on all CPUs.
	Seats seat.Config `json:"seats,omitzero"`
	// Misfit says when Tenon reports that a CPU limit does not fit its workload.
	Misfit misfit.Config `json:"misfit,omitzero"`
}

// State is the data that the policies keep between ticks.
type State struct {
	Use facts.Use `json:"use"`
	// Growth is the amount by which the CPU of BE work may still grow. Growth
	// increases with time, and decreases when BE grows.
	Growth unit.MilliCPU `json:"growth_mcpu,omitempty"`
	// Raised holds the bounds of BE pods whose quota is larger, so that a container can start.
	Raised suppress.Raised `json:"raised_mcpu,omitempty"`
	// Selector holds the selected isolation mechanism.
	Selector isolation.Selector `json:"selector,omitzero"`
	// SLO tracks the objectives. CPUBackOff is the reduction of the CPU of BE.
	SLO        slo.Tracker      `json:"slo,omitzero"`
	CPUBackOff suppress.BackOff `json:"cpu_backoff,omitzero"`
	// Single holds the bounds of single BE workloads.
	Single culprit.State `json:"culprits,omitzero"`
	// CacheBackOff is the reduction of the cache and memory bandwidth of BE.
	CacheBackOff cache.BackOff `json:"cache_backoff,omitzero"`
	// CPUs holds the CPUs of the workloads that ask for some.
	CPUs hold.Held `json:"cpus,omitzero"`
	// Grown holds the CPUs that growing pools have in addition to their homes.
	Grown grow.State `json:"grown,omitzero"`
	// Lending holds the loans of quota burst.
	Lending burst.Lending `json:"lending,omitzero"`
	// Batch is the state of the batch resources.
	Batch overcommit.State `json:"batch,omitzero"`
	// Evictions holds the BE workloads that Tenon is evicting, and the state on
	// which further evictions depend.
	Evictions evict.State `json:"evictions,omitzero"`
	// Reclaim holds the steps by which the kernel reclaims memory of BE work.
	Reclaim reclaim.State `json:"reclaim,omitzero"`
	// Seats holds the CPUs of BE work with a CPU limit.
	Seats   seat.State   `json:"seats,omitzero"`
	Misfits misfit.State `json:"misfits,omitempty"` // of throttled workloads; no policy reads it
}

func reasonsOf(misses []slo.Miss) map[node.WorkloadID]string {
	var all map[node.WorkloadID]string
	for _, m := range misses {
		if all == nil {
			all = map[node.WorkloadID]string{}
		}
		all[m.Workload] = m.Text()
	}
	return all
}

// Decide returns the wanted value of each knob, and the state for the next call.
func Decide(c Config, st State, s node.Snapshot) (State, []plan.Want) {
	l := facts.LayoutOf(s)
	next := State{Use: st.Use.Observe(s), SLO: st.SLO.Observe(s)}
	next.Single = st.Single.Follow(culprit.Input{SLO: next.SLO, Use: next.Use, Capacity: unit.CPUs(c.NodeCPUs.Counted(s).Len()), Snapshot: s})
	next.CPUBackOff = st.CPUBackOff.Follow(next.SLO, next.Single.Alone, s.At)
	next.Batch = st.Batch.Observe(c.Overcommit, c.NodeCPUs, next.Use.Elapsed, s)
	nodeCPUs := c.NodeCPUs.WithIsolated(s)
	own := hold.Decide(nodeCPUs, c.Suppress.KeepPercent(), st.CPUs, s)
	next.Grown, own = grow.Decide(st.Grown, own, st.Use, next.Use, reasonsOf(next.SLO.Unexplained()), s)
	next.CPUs = own.Held
	var selector, bounds, shares, ends []plan.Want
	next.Selector, selector = st.Selector.Select(c.CPUQOS, isolation.Input{NodeCPUs: nodeCPUs, Layout: l, Use: next.Use, SLO: next.SLO, Own: own, Snapshot: s})
	next.Growth, next.CPUBackOff, bounds = suppress.Decide(c.Suppress, st.Growth, suppress.Input{
		NodeCPUs: nodeCPUs, Layout: l, Use: next.Use, BackOff: next.CPUBackOff, Single: next.Single, Own: own, Snapshot: s,
		Avoid: next.Selector.LS.Siblings(s.Topology), Seated: st.Seats.May, Raised: st.Raised,
	})
	var seats seat.Grants
	next.Seats, seats, bounds = seat.Wants(c.Seats, st.Seats, nodeCPUs, l, next.Use, own, bounds, s)
	var limits []plan.Want
	next.Lending, limits = burst.Decide(c.Burst, st.Lending, burst.Input{Layout: l, Use: next.Use, Own: own, Seats: seats, Bounds: bounds, Single: next.Single, Snapshot: s})
	next.Raised, bounds = suppress.LetStart(l, st.Raised, bounds, s)
	if len(c.Cache.Classes) > 0 || facts.AnyOf(s.Workloads, cache.OwnsControl) {
		next.CacheBackOff = st.CacheBackOff.Follow(next.SLO, s)
		shares = cache.Decide(c.Cache, next.CacheBackOff, !next.Selector.ClearsSiblings(c.CPUQOS, s), s)
	}
	next.Evictions, ends = evict.Decide(c.Evict, st.Evictions, l, next.Use, s)
	next.Reclaim = reclaim.Decide(c.Reclaim, st.Reclaim, s)
	next.Misfits = st.Misfits.Observe(c.Misfit, s)
	more := 0 // orders
	if next.Selector.Status.Mechanism == node.MechanismSchedExt {
		more = len(s.Workloads) + 2
	}
	wants := plan.Join(more, selector, isolation.WeightWants(c.CPUQOS, next.Selector.Status.Mechanism, l, s), bounds, bind.LS(own, l, s), limits,
		memory.Decide(c.Memory, s), shares, blockio.Decide(c.IO, s), ends)
	wants = append(wants, orphans(l, s, wants)...)
	releaseInSteps(s.Knobs, wants)
	wants = writeconflict.Pause(s, wants)
	orders, slotless := isolation.Orders(s, l.RootOf, wants)
	next.Selector.Status.Slotless = slotless
	return next, append(wants, orders...)
}
