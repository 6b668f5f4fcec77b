package evict

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// MemoryConfig configures the eviction of BE work when the node's memory is
// short.
type MemoryConfig struct {
	// Eviction starts when ThresholdPercent of the node's memory are in use
	// (memoryEvictThresholdPercent, 0 to 100). A threshold of 0 disables it.
	ThresholdPercent unit.Percent `json:"memoryEvictThresholdPercent"`
	// Eviction stops when at most LowerPercent of the node's memory are in use
	// (memoryEvictLowerPercent).
	LowerPercent unit.Percent `json:"memoryEvictLowerPercent"`
}

func (c MemoryConfig) on() bool { return c.ThresholdPercent > 0 }

// Tenon may freeze or kill a workload that has grown by more than the node's
// memory divided by growthDivisor.
const growthDivisor = 200

// memoryRelief is the state of memory eviction while memory is short.
type memoryRelief struct {
	// Short says that memory is short. Base is the memory usage of each
	// workload when the shortage began.
	Short bool                           `json:"short,omitempty"`
	Base  map[node.WorkloadID]unit.Bytes `json:"base,omitempty"`
	// Cached holds the workloads whose amount in Base includes all page cache.
	Cached map[node.WorkloadID]bool `json:"cached,omitempty"`
	// Frozen holds the workloads that Tenon froze in this shortage.
	Frozen map[node.WorkloadID]bool `json:"frozen,omitempty"`
	// Then is the amount of memory that the node used when the last victims were
	// chosen. Expected is the amount of memory that their end should free.
	Then     unit.Bytes `json:"then,omitempty"`
	Expected unit.Bytes `json:"expected,omitempty"`
}

// includesCache reports whether the amount that facts.MemoryOf returns for a
// workload includes all its page cache.
func includesCache(w node.Workload) bool { return !w.Usage.WorkingSet.Known() }

// hasGrown reports whether a workload uses clearly more memory than the given
// amount (than). If only one of the two amounts includes page cache, they
// cannot be compared, and hasGrown returns false.
func (x *evictor) hasGrown(w node.Workload, than unit.Bytes, withCache bool) bool {
	total, known := x.snap.MemoryTotal.Value()
	now, measured := facts.MemoryOf(w).Value()
	return known && measured && includesCache(w) == withCache && now-than > total/growthDivisor
}

// freedBy returns a function. For a workload, that function returns the memory
// that its end frees. If only some BE workloads have a known working set, it
// returns 0 for the others, because their amounts include page cache.
func (x *evictor) freedBy() func(node.Workload) int64 {
	apart := slices.ContainsFunc(x.snap.Workloads, func(w node.Workload) bool { return w.Class == node.BE && !includesCache(w) })
	return func(w node.Workload) int64 {
		if apart && includesCache(w) {
			return 0
		}
		return int64(facts.MemoryOf(w).Or(0))
	}
}

// relieve evicts workloads while memory is short. It also freezes workloads
// that grow. Frozen workloads cannot take the memory that ended workloads free.
// Reclaiming page cache of BE would not help, because the kernel already counts
// page cache as available.
func (x *evictor) relieve() {
	c := x.Memory
	if !c.on() {
		x.thaw("memory eviction is off")
		return
	}
	total, sized := x.snap.MemoryTotal.Value()
	used, known := x.snap.Usage.Memory.Value()
	if !sized || !known || total <= 0 {
		x.next.Memory = x.was.Memory
		x.leave("memory: the use of the node's memory is unknown")
		return
	}
	over, low := total.Percent(c.ThresholdPercent), total.Percent(c.LowerPercent)
	state := fmt.Sprintf("%v of %v are in use", facts.MiB(used), facts.MiB(total))
	switch {
	case used >= over:
	case used > low && x.was.Memory.Short && x.pursues(CauseMemory):
		x.freezeGrown(state)
		return
	default:
		x.thaw(fmt.Sprintf("memory: %s, less than %v: it may go on", state, c.ThresholdPercent))
		return
	}
	ending := x.ending()
	need := used - low - ending
	if x.mayChoose() && (ending == 0 || need > total/growthDivisor) {
		reason := fmt.Sprintf("%s, which is %v or more: %v must go", state, c.ThresholdPercent, facts.MiB(need))
		if ending > 0 {
			reason += fmt.Sprintf(" besides %v of those that are ending", facts.MiB(ending))
		} else if x.was.Memory.Expected > 0 {
			reason += fmt.Sprintf(" (the last eviction freed %v of %v)", facts.MiB(max(x.was.Memory.Then-used, 0)), facts.MiB(x.was.Memory.Expected))
		}
		bytes := x.freedBy()
		expected, chosen := x.choose(CauseMemory, reason, int64(need), bytes, bytes, func(n int64) string { return facts.MiB(unit.Bytes(n)) })
		if chosen > 0 {
			x.was.Memory.Then, x.was.Memory.Expected = used, unit.Bytes(expected)+ending
		}
	}
	x.freezeGrown(state)
}

// mayChoose reports whether victims may be chosen now because memory is short.
func (x *evictor) mayChoose() bool {
	for _, v := range x.next.Victims {
		if v.holdsAll() {
			return false
		}
	}
	return x.next.Settling == 0
}

// ending returns the memory of the victims for which Tenon waits.
func (x *evictor) ending() (all unit.Bytes) {
	for _, w := range x.snap.Workloads {
		if v, chosen := x.next.Victims[w.ID]; chosen && v.holds() {
			all += facts.MemoryOf(w).Or(v.Memory)
		}
	}
	return all
}

// pursues reports whether a victim for the given cause is still ending.
func (x *evictor) pursues(cause Cause) bool {
	for _, v := range x.next.Victims {
		if v.Cause == cause && v.holds() {
			return true
		}
	}
	return false
}

// freezeGrown freezes the workloads that have grown since the shortage of
// memory began.
func (x *evictor) freezeGrown(state string) {
	next := x.was.Memory
	next.Short, next.Base, next.Frozen = true, map[node.WorkloadID]unit.Bytes{}, map[node.WorkloadID]bool{}
	next.Cached = map[node.WorkloadID]bool{}
	for _, w := range x.candidates(CauseMemory) {
		now, known := facts.MemoryOf(w).Value()
		if !known {
			continue
		}
		base, had := x.was.Memory.Base[w.ID]
		if !had || !x.was.Memory.Short || x.was.Memory.Cached[w.ID] != includesCache(w) {
			base = now
		}
		next.Base[w.ID] = base
		if includesCache(w) {
			next.Cached[w.ID] = true
		}
		standing := x.snap.Knobs.Now[RunKnob(w)] == node.Frozen
		_, ours := x.snap.Knobs.Before[RunKnob(w)]
		switch frozen := x.was.Memory.Frozen[w.ID]; {
		case frozen && standing:
			next.Frozen[w.ID] = true
			x.want(w, plan.Set, node.Frozen, fmt.Sprintf("memory: %s: what grew stands still until less is", state))
		case frozen:
			// The workload was frozen and now runs. Either the kernel could not
			// freeze it, or another component thawed it. Tenon does not try
			// again.
			next.Frozen[w.ID] = true
		case ours && standing:
			next.Frozen[w.ID] = true
			x.want(w, plan.Set, node.Frozen, fmt.Sprintf("memory: %s: it stands still until less is", state))
		case !standing && x.snap.Capabilities.Has(node.FeatureCgroupFreezer) && x.hasGrown(w, base, includesCache(w)):
			next.Frozen[w.ID] = true
			x.want(w, plan.Set, node.Frozen, fmt.Sprintf("memory: %s, and %s has grown by %v meanwhile: it stands still until less is", state, w.ID, facts.MiB(now-base)))
		}
	}
	x.next.Memory = next
}

// thaw thaws the workloads that Tenon froze.
func (x *evictor) thaw(reason string) {
	for _, w := range x.snap.Workloads {
		_, ours := x.snap.Knobs.Before[RunKnob(w)]
		_, chosen := x.next.Victims[w.ID]
		if w.Class == node.BE && ours && !chosen {
			x.want(w, plan.Release, nil, reason)
		}
	}
}
