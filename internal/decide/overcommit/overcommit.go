// Package overcommit decides how much CPU and memory a node offers to best-effort
// work as batch resources.
package overcommit

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config is colocation-config: how much CPU and memory Tenon offers as
// batch resources. It sets no knob. Its result is State.Offer.
type Config struct {
	Enable bool    `json:"enable"`
	CPU    Reclaim `json:"cpu,omitzero"`
	Memory Reclaim `json:"memory,omitzero"`
	// Window is the time over which the usage is averaged (metricAggregateDurationSeconds).
	// The offer can grow only as far as this average allows.
	Window time.Duration `json:"window_ns,omitempty"`
	// Look is the time between two decisions to raise the offer (metricReportIntervalSeconds).
	// The first decision comes after Tenon has measured the node for this time.
	Look time.Duration `json:"look_ns,omitempty"`
	// DegradeAfter is the time for which an input may be missing
	// (degradeTimeMinutes). After that, the offer is 0.
	DegradeAfter time.Duration `json:"degrade_after_ns,omitempty"`
	// RenewAfter is an age of the present offer (updateTimeThresholdSeconds). If the offer is at
	// least this old, Tenon publishes every increase. WorthPPM is the size of an increase, in
	// millionths of the present offer (resourceDiffThreshold). Tenon publishes an increase of at
	// least this size at any age of the offer.
	RenewAfter time.Duration `json:"renew_after_ns,omitempty"`
	WorthPPM   int64         `json:"worth_ppm,omitempty"`
	// WithPageCache counts all page cache as used memory (metricMemoryCollectPolicy:
	// usageWithPageCache). If it is false, the working set counts.
	WithPageCache bool `json:"with_page_cache,omitempty"`
	// ReservedCPU and ReservedMemory are set aside for the node's own work.
	// They count in full, even if that work uses less.
	ReservedCPU    unit.MilliCPU `json:"reserved_cpu_mcpu,omitempty"`
	ReservedMemory unit.Bytes    `json:"reserved_memory_bytes,omitempty"`
	// MinServicePercent is the part of the CPU or of the memory of the node that other work
	// must request (minServiceRequestPercent). With less of both, nothing is offered: an
	// autoscaler may want to remove the node. 0 means that the requests do not matter.
	MinServicePercent unit.Percent `json:"min_service_percent,omitempty"`
	// Peak configures how work counts by its predicted peak usage.
	Peak PeakPrediction `json:"peak,omitzero"`
}

// Reclaim configures how one resource is divided between BE and the other classes.
type Reclaim struct {
	// ThresholdPercent is the share of the capacity that all classes together
	// may use (cpuReclaimThresholdPercent). It is at least 0.
	ThresholdPercent unit.Percent `json:"threshold_percent"`
	// LimitPercent is the largest share of the capacity that Tenon offers
	// (batchCPUThresholdPercent). It is at least 0. If it is absent, there is no limit.
	LimitPercent node.Maybe[unit.Percent] `json:"limit_percent,omitzero"`
	// Policy says how the work of the other classes counts.
	Policy ReclaimPolicy `json:"policy,omitempty"`
}

// ReclaimPolicy says how the work of the other classes counts: by usage, by
// request, or by the larger of the two.
type ReclaimPolicy string

// The reclaim policies, named as in colocation-config.
const (
	ByUsage           ReclaimPolicy = "usage"
	ByRequest         ReclaimPolicy = "request"
	ByMaxUsageRequest ReclaimPolicy = "maxUsageRequest"
)

// State is the state of the batch resources.
type State struct {
	Offer  node.Batch `json:"offer,omitzero"`
	Demand demand     `json:"demand,omitzero"`
	// Looked is the time since the last decision about an increase of the
	// offer. CPU and Memory are the ages of the two offered amounts.
	Looked time.Duration `json:"looked_ns,omitempty"`
	CPU    age           `json:"cpu,omitzero"`
	Memory age           `json:"memory,omitzero"`
}

// An age is the time since an amount was set, as a sum of the times between
// snapshots. So a change of the clock does not make an amount older.
type age struct {
	Renewed time.Duration `json:"renewed_ns,omitempty"` // time since the amount was computed
	Blind   time.Duration `json:"blind_ns,omitempty"`   // time for which an input has been missing
}

// Observe computes the batch resources and their state from a snapshot. elapsed
// is the time since the last snapshot.
//
// The formula is Koordinator's. Observe computes it three times, with the usage in
// Window, with the usage in the last 5 s, and with the smaller usage of the last
// two samples, and takes the smallest result. A result below the present offer
// replaces the offer at once. A result above it waits for the next decision
// (Look). It is published only if the increase is large enough (WorthPPM) or the
// offer is old enough (RenewAfter).
func (b State) Observe(c Config, p facts.NodeCPUs, elapsed time.Duration, s node.Snapshot) State {
	if !c.Enable {
		return State{}
	}
	next := b
	var sampled time.Duration
	if next.Demand, sampled = b.Demand.observe(c, p, elapsed, s); sampled == 0 {
		if !b.Offer.Enabled() {
			next.Offer = node.Batch{
				CPU:    node.Amount[unit.MilliCPU]{Policy: string(c.CPU.Policy), Degraded: node.Unmeasured},
				Memory: node.Amount[unit.Bytes]{Policy: string(c.Memory.Policy), Degraded: node.Unmeasured},
			}
		}
		return next
	}
	unneeded := c.unneeded(p, s)
	next.Looked += sampled
	look := next.Looked >= c.Look
	if look {
		next.Looked = 0
	}
	next.Offer.CPU, next.CPU = settle(c, b.Offer.CPU, b.CPU.after(sampled), formula(cpuOf(c, p, s, unneeded), c, next.Demand, s), look, s.At)
	next.Offer.Memory, next.Memory = settle(c, b.Offer.Memory, b.Memory.after(sampled), formula(bytesOf(c, s, unneeded), c, next.Demand, s), look, s.At)
	return next
}

func (a age) after(elapsed time.Duration) age {
	return age{Renewed: a.Renewed + elapsed, Blind: a.Blind + elapsed}
}

// A finding is a result of the formula with its explanation.
type finding[T unit.MilliCPU | unit.Bytes] struct {
	value   T
	terms   []node.Term[T]
	policy  ReclaimPolicy
	over    time.Duration
	missing string // the missing input; empty: none
}

// settle chooses between the present offer and the new result of the formula.
func settle[T unit.MilliCPU | unit.Bytes](c Config, old node.Amount[T], a age, f finding[T], look bool, at time.Time) (node.Amount[T], age) {
	next := old
	next.Policy, next.Formula, next.Held, next.Degraded = string(f.policy), f.value, "", ""
	take := func() {
		next.Value, next.Terms, next.Over, next.Since = f.value, f.terms, f.over, at
		a.Renewed = 0
	}
	if f.missing != "" {
		switch {
		case a.Blind > c.DegradeAfter:
			next.Value, next.Terms, next.Over, next.Since = 0, nil, 0, at
			if old.Value == 0 {
				next.Since = old.Since
			}
			next.Degraded = fmt.Sprintf("%s for more than %v: nothing is promised", f.missing, c.DegradeAfter)
		default:
			if f.value < old.Value {
				take()
			}
			next.Degraded = fmt.Sprintf("%s: the amount does not rise, and is 0 after %v", f.missing, c.DegradeAfter)
		}
		next.Formula = next.Value // the result of the formula is not valid
		return next, a
	}
	a.Blind = 0
	worth := old.Value/1_000_000*T(c.WorthPPM) + old.Value%1_000_000*T(c.WorthPPM)/1_000_000
	switch more := f.value - old.Value; {
	case more < 0:
		take()
	case more == 0:
		next.Terms, next.Over = f.terms, f.over
	case look && (more > worth || a.Renewed >= c.RenewAfter):
		take()
	case more > worth || a.Renewed >= c.RenewAfter:
		next.Held = fmt.Sprintf("more is promised every %v", c.Look)
	default:
		next.Held = fmt.Sprintf("an increase of less than %s waits until %v have passed", node.Readable(worth), c.RenewAfter)
	}
	return next, a
}
