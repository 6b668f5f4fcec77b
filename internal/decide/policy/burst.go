package policy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Burst is the strategy cpu-burst-config: how much CPU time a
// latency-sensitive workload that has a limit may save up and borrow, so that
// the limit hurts it less. It is for LS alone: LSR and LSE work has CPUs of its
// own and no quota to suffer from, and best-effort work is to have no bursts.
type Burst struct {
	// Policy is which of the two is done; empty: neither.
	Policy BurstPolicy `json:"policy,omitempty"`
	// CPUPercent is how much is saved up, in percent of what the limit
	// allows in a period (cpuBurstPercent). The kernel takes no more than 100.
	CPUPercent unit.Percent `json:"cpuBurstPercent,omitempty"`
	// QuotaPercent is how far the quota grows, in percent of the limit
	// (cfsQuotaBurstPercent).
	QuotaPercent unit.Percent `json:"cfsQuotaBurstPercent,omitempty"`
	// PeriodSeconds is for how long all of that can be borrowed, after as
	// much was saved; below 1: without end (cfsQuotaBurstPeriodSeconds).
	PeriodSeconds int64 `json:"cfsQuotaBurstPeriodSeconds,omitempty"`
	// PoolPercent is from which use of the CPUs that are nobody's own on
	// quotas are not raised but lowered (sharePoolThresholdPercent).
	PoolPercent unit.Percent `json:"sharePoolThresholdPercent,omitempty"`
}

// BurstPolicy says what is done for bursts.
type BurstPolicy string

// The burst policies, named as in cpu-burst-config.
const (
	BurstCPU   BurstPolicy = "cpuBurstOnly"
	BurstQuota BurstPolicy = "cfsQuotaBurstOnly"
	BurstAuto  BurstPolicy = "auto"
)

func (b Burst) saves() bool   { return b.Policy == BurstCPU || b.Policy == BurstAuto }
func (b Burst) borrows() bool { return b.Policy == BurstQuota || b.Policy == BurstAuto }

// mostBandwidth is the most that quota and burst may be together
// (kernel/sched/core.c: MAX_BW, 2^44-1 µs).
const mostBandwidth = (1<<44 - 1) * time.Microsecond

// A burster is one decision on the limits of workloads.
type burster struct {
	Burst
	snap node.Snapshot
	use  facts.Use
	had  lending
	next lending
}

// newBurster looks at the node: how busy the shared CPUs are.
func newBurster(b Burst, had lending, u facts.Use, own grants, s node.Snapshot) burster {
	x := burster{Burst: b, snap: s, use: u, had: had}
	borrows := func(w node.Workload) bool { return b.of(w.Asks.Burst).borrows() }
	if b.borrows() || slices.ContainsFunc(s.Workloads, borrows) {
		x.next = lending{Work: make(map[node.WorkloadID]loan, len(had.Work))}
		x.next.Pool, x.next.Known = had.poolNow(u, own, s)
	}
	return x
}

// wants are the CPU limits of a workload and of its parts: what their owner asked
// for, or what was there before Tenon, with what the workload may save up and
// borrow on top. Without a limit there is nothing to do. Loans are the
// workload's: its parts get their share of them.
func (x *burster) wants(w node.Workload) []plan.Want {
	own := x.Burst.of(w.Asks.Burst)
	whole := node.Part{Name: string(w.ID), Cgroup: w.Cgroup, CPULimit: w.CPULimit}
	lent, why := 1.0, ""
	// A pod has no limit where one of its containers has none. What the others
	// have together then stands for it, and they alone borrow.
	base, now := x.partLimits(w)
	if _, _, limited := ownLimit(x.snap.Knobs, w, whole); !limited && w.Class == node.LS && own.borrows() && base.Quota > 0 {
		var quota time.Duration
		quota, why = x.lend(own, w, base, now)
		lent = float64(quota) / float64(base.Quota)
	}
	wants := make([]plan.Want, 0, 1+len(w.Parts))
	for i, p := range append([]node.Part{whole}, w.Parts...) {
		if i > 0 {
			p.Name = facts.PartName(w, p)
		}
		want, base, limited := ownLimit(x.snap.Knobs, w, p)
		if w.Class != node.LS || !limited || own.Policy == "" {
			wants = append(wants, want)
			continue
		}
		v := base
		if i == 0 && own.borrows() {
			v.Quota, why = x.lend(own, w, base, x.quotaNow(w.Cgroup, base))
			lent = float64(v.Quota) / float64(base.Quota)
		} else if lent > 1 {
			v.Quota = time.Duration(math.Round(float64(base.Quota) * lent)).Truncate(time.Microsecond)
		}
		if v.Quota > base.Quota {
			want.Reason += fmt.Sprintf("; borrows up to %v", facts.MilliOf(v))
		}
		if why != "" && (i == 0 || v.Quota != base.Quota) {
			want.Reason += "; " + why
			why = ""
		}
		if own.saves() {
			want.Reason += "; " + x.save(own, &v, base)
		}
		if want.Intent == plan.Set || v != base {
			want.Intent, want.Value = plan.Set, v
		}
		wants = append(wants, want)
	}
	return wants
}

// of is what is done for the bursts of one workload.
func (b Burst) of(ask node.BurstAsk) Burst {
	switch ask.Policy {
	case "":
	case node.BurstNone:
		return Burst{}
	default:
		b.Policy = BurstPolicy(ask.Policy)
	}
	b.CPUPercent, b.QuotaPercent = ask.CPUPercent.Or(b.CPUPercent), ask.QuotaPercent.Or(b.QuotaPercent)
	b.PeriodSeconds = ask.PeriodSeconds.Or(b.PeriodSeconds)
	return b
}

// save sets the burst of v: what the kernel accepts of what was asked for, and
// never less than what was there.
func (x *burster) save(b Burst, v *node.CPUMax, base node.CPUMax) string {
	if !x.snap.Can.Can(node.MechCPUBurst) {
		return "this kernel lets no CPU time be saved up"
	}
	most := min(v.Quota, max(mostBandwidth-v.Quota, 0))
	asked := min(base.Quota, mostBandwidth) / 100 * time.Duration(min(b.CPUPercent, 10000))
	v.Burst = min(max(asked, base.Burst), most).Truncate(time.Microsecond)
	return fmt.Sprintf("saves up %v for bursts", v.Burst)
}
