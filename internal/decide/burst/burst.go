// Package burst decides the CPU limit (cpu.max) of each workload: the limit of its
// owner, plus CPU burst for LS work.
package burst

import (
	"fmt"
	"math"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config is the strategy cpu-burst-config. It reduces the throttling of LS workloads that have a
// CPU limit: such a workload may save unused CPU time and borrow more. The strategy applies to LS
// only. LSR and LSE work has exclusive CPUs and no quota, and BE work must not burst.
type Config struct {
	// Policy selects saving, borrowing or both. If it is empty, neither is on.
	Policy Policy `json:"policy,omitempty"`
	// CPUPercent is the maximum saved time, in percent of the quota of a period
	// (cpuBurstPercent). The kernel accepts at most 100.
	CPUPercent unit.Percent `json:"cpuBurstPercent,omitempty"`
	// QuotaPercent is the largest quota, in percent of the limit (cfsQuotaBurstPercent).
	QuotaPercent unit.Percent `json:"cfsQuotaBurstPercent,omitempty"`
	// PeriodSeconds (cfsQuotaBurstPeriodSeconds) limits the time in which a workload
	// with the maximum savings may use its largest quota. Below 1 there is no limit.
	PeriodSeconds int64 `json:"cfsQuotaBurstPeriodSeconds,omitempty"`
	// PoolPercent is a threshold for the usage of the shared CPUs, in percent
	// (sharePoolThresholdPercent). At or above it, quotas shrink and do not grow.
	PoolPercent unit.Percent `json:"sharePoolThresholdPercent,omitempty"`
}

// Policy selects the kinds of burst.
type Policy string

// The burst policies, named as in cpu-burst-config.
const (
	Save   Policy = "cpuBurstOnly"
	Borrow Policy = "cfsQuotaBurstOnly"
	Both   Policy = "auto"
)

func (b Config) saves() bool   { return b.Policy == Save || b.Policy == Both }
func (b Config) borrows() bool { return b.Policy == Borrow || b.Policy == Both }

// maxBandwidth is the largest sum of quota and burst (MAX_BW, 2^44-1 µs).
const maxBandwidth = (1<<44 - 1) * time.Microsecond

// A burster decides the CPU limits of all workloads in one tick.
type burster struct {
	Config
	snap node.Snapshot
	use  facts.Use
	had  Lending
	next Lending
	mine []plan.Want // the last result of wants; the next call overwrites it
}

// newBurster returns a burster, with the usage of the shared CPUs.
func newBurster(b Config, had Lending, u facts.Use, own hold.Grants, s node.Snapshot) burster {
	x := burster{Config: b, snap: s, use: u, had: had}
	borrows := func(w *node.Workload) bool { return b.strategyFor(w.Overrides.Burst).borrows() }
	if b.borrows() || facts.AnyOf(s.Workloads, borrows) {
		x.next = Lending{Work: make(map[node.WorkloadID]loan, len(had.Work))}
		x.next.Shared, x.next.Known = had.sharedNow(u, own, s)
	}
	return x
}

// wants returns the CPU limits of a workload and of its containers. Each is the
// limit of the owner, or the limit from before Tenon's first write, plus
// savings and loans. A workload without a limit gets no want. A loan belongs to
// the workload; its containers get it in proportion to their limits.
func (x *burster) wants(w *node.Workload) []plan.Want {
	own := x.Config.strategyFor(w.Overrides.Burst)
	whole := node.Container{Name: string(w.ID), Cgroup: w.Cgroup, CPULimit: w.CPULimit}
	lent, why := 1.0, ""
	// A pod with an unlimited container has no limit. Then the sum of its
	// limited containers counts as the limit, and only they borrow.
	if w.Class == node.LS && own.borrows() && len(w.Containers) > 0 {
		base, now := x.partLimits(w)
		if _, _, limited := ownLimit(&x.snap.Knobs, w, &whole); !limited && base.Quota > 0 {
			var quota time.Duration
			quota, why = x.lend(own, w, base, now)
			lent = float64(quota) / float64(base.Quota)
		}
	}
	wants := x.mine[:0]
	for i := range 1 + len(w.Containers) {
		p := whole
		if i > 0 {
			p = w.Containers[i-1]
			p.Name = facts.PartName(w.ID, p.Name)
		}
		want, base, limited := ownLimit(&x.snap.Knobs, w, &p)
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
	x.mine = wants
	return wants
}

// strategyFor returns the strategy for a workload with its overrides (ask).
func (b Config) strategyFor(ask node.BurstOverride) Config {
	switch ask.Policy {
	case "":
	case node.BurstNone:
		return Config{}
	default:
		b.Policy = Policy(ask.Policy)
	}
	b.CPUPercent, b.QuotaPercent = ask.CPUPercent.Or(b.CPUPercent), ask.QuotaPercent.Or(b.QuotaPercent)
	b.PeriodSeconds = ask.PeriodSeconds.Or(b.PeriodSeconds)
	return b
}

// save sets the burst of v to the configured value. It sets at most what the kernel
// accepts, and at least the burst that the cgroup had before Tenon first wrote it.
func (x *burster) save(b Config, v *node.CPUMax, base node.CPUMax) string {
	if !x.snap.Capabilities.Has(node.FeatureCPUBurst) {
		return "this kernel has no CPU burst"
	}
	most := min(v.Quota, max(maxBandwidth-v.Quota, 0))
	asked := min(base.Quota, maxBandwidth) / 100 * time.Duration(min(b.CPUPercent, 10000))
	v.Burst = min(max(asked, base.Burst), most).Truncate(time.Microsecond)
	return fmt.Sprintf("saves up %v for bursts", v.Burst)
}
