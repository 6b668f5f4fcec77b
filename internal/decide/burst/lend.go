package burst

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// lendEvery is the minimum time between two changes of a quota, each by a
	// factor of 1.2 or 0.8. It is short enough that a quota can change in each
	// tick if the period is one second, as in Koordinator.
	lendEvery = 900 * time.Millisecond
	// sharedTau is the time constant of the mean usage of the shared CPUs.
	sharedTau = 5 * time.Second
	// calmLoan is the time without throttling after which a workload gives its
	// loan back.
	calmLoan = 30 * time.Second
	// No quota grows while the usage of the shared CPUs is at least
	// coolingShare percent of PoolPercent.
	coolingShare = 90
	// A workload that uses less than thriftyShare percent of its CPU limit
	// saves CPU time.
	thriftyShare = 60
	// The savings of a new workload are the maximum divided by firstSavings. Koordinator chooses
	// a random amount of at most half the maximum.
	firstSavings = 4
)

// Lending is the state of quota burst.
type Lending struct {
	// Shared is the mean usage of the shared CPUs over about sharedTau, in
	// thousandths of their capacity. It is valid only if Known is set.
	Shared unit.MilliCPU `json:"shared_permille,omitempty"`
	Known  bool          `json:"known,omitempty"`
	// Work holds the loans of workloads with a limit.
	Work map[node.WorkloadID]loan `json:"work,omitempty"`
}

// A loan is the state of quota burst of one workload.
type loan struct {
	// At is the time at which the quota was last decided and the counters were read.
	At        time.Time         `json:"at,omitzero"`
	Periods   node.Maybe[int64] `json:"periods,omitzero"`
	Throttled node.Maybe[int64] `json:"throttled,omitzero"`
	// Felt is the time at which the workload was last throttled. If it was
	// never throttled, Felt is the time at which Tenon first saw it.
	Felt time.Time `json:"felt,omitzero"`
	// Savings is the CPU time that the workload may still borrow, in millicpu ×
	// ms. It counts only if PeriodSeconds limits borrowing.
	Savings int64 `json:"savings,omitempty"`
}

// sharedNow returns the new mean usage of the shared CPUs by all work except BE. It returns false
// if that usage is unknown.
func (m Lending) sharedNow(u facts.Use, own hold.Grants, s node.Snapshot) (unit.MilliCPU, bool) {
	var used unit.MilliCPU
	cpus := 0
	for _, c := range s.Topology.CPUs {
		rate, known := u.CPU[c.ID]
		if !known {
			return 0, false
		}
		used += rate
		cpus++
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		set, owner := own.Exclusive(w.ID)
		if owner {
			cpus -= set.Len()
		}
		if owner || w.Class == node.BE {
			used -= u.Workload[w.ID]
		}
	}
	if cpus <= 0 {
		return 0, false
	}
	share := max(used, 0) / unit.MilliCPU(cpus)
	if m.Known {
		share = trend.Decay(m.Shared, share, u.Elapsed, sharedTau)
	}
	return share, true
}

// lend returns the quota of a workload, and the reason if it changed. The quota
// lies between the limit and QuotaPercent of the limit. It grows step by step
// while the workload is throttled and the shared CPUs are idle. It shrinks step
// by step if the shared CPUs are busy, the savings are used up, or the workload
// does not need the loan. The argument now is the present quota.
func (x *burster) lend(b Config, w *node.Workload, base node.CPUMax, now time.Duration) (time.Duration, string) {
	most := x.maxFor(b, w, base)
	quota := min(max(now, base.Quota), most)
	l, known := x.had.Work[w.ID]
	elapsed := x.snap.At.Sub(l.At)
	if known && elapsed < lendEvery && elapsed >= 0 {
		x.next.Work[w.ID] = l
		return quota, ""
	}
	elapsed = max(elapsed, 0) // l.At is from before a reboot
	next := loan{At: x.snap.At, Felt: l.Felt, Periods: newerReading(l.Periods, w.Usage.Periods), Throttled: newerReading(l.Throttled, w.Usage.ThrottledPeriods)}
	if next.Felt.After(x.snap.At) {
		next.Felt = x.snap.At
	}
	if !known {
		next.Felt, next.Savings = x.snap.At, b.maxSavings(base)/firstSavings
		x.next.Work[w.ID] = next
		return quota, ""
	}
	used, rated := x.use.Workload[w.ID]
	next.Savings = b.savings(l, base, used, elapsed, rated)
	throttled, periods := counterGrowth(l.Throttled, next.Throttled), counterGrowth(l.Periods, next.Periods)
	felt := throttled > 0
	if felt {
		next.Felt = x.snap.At
	}
	x.next.Work[w.ID] = next

	busy := fmt.Sprintf("the shared CPUs are %d%% busy", x.next.Shared/10)
	limit := unit.MilliCPU(b.PoolPercent) * 10
	more, less := quota/5*6, quota/5*4
	var why string
	switch {
	case x.next.Known && x.next.Shared >= limit:
		quota, why = less, busy+", so it gives back"
	case b.PeriodSeconds > 0 && next.Savings <= 0:
		quota, why = less, "its savings are used up"
	case felt && !x.next.Known:
		why = "the use of the CPUs is unknown, so it does not grow"
	case felt && x.next.Shared >= limit*coolingShare/100:
		why = busy + ", so it does not grow"
	case felt:
		quota, why = more, fmt.Sprintf("throttled in %d of %d periods", throttled, max(periods, throttled))
	case rated && used < facts.MilliOf(base) && x.snap.At.Sub(next.Felt) >= calmLoan:
		quota, why = less, "no longer throttled, so it gives back"
	}
	quota = min(max(quota.Truncate(time.Microsecond), base.Quota), most)
	return quota, why
}

// newerReading returns the newer of two readings of a counter. The result is
// absent if both readings are.
func newerReading(before, now node.Maybe[int64]) node.Maybe[int64] {
	if now.Known() {
		return now
	}
	return before
}

// counterGrowth returns the growth of a counter between two readings. It
// returns 0 if either reading is absent.
func counterGrowth(before, now node.Maybe[int64]) int64 {
	return now.Or(0) - before.Or(now.Or(0))
}

// maxFor returns the largest quota that a workload may get. On cgroup v1 the
// kernel refuses a quota above the parent's, and on v2 such a quota has no
// additional effect.
func (x *burster) maxFor(b Config, w *node.Workload, base node.CPUMax) time.Duration {
	most := base.Quota
	switch percent := time.Duration(b.QuotaPercent); {
	case percent <= 100:
	case base.Quota > maxBandwidth/2/percent*100:
		most = maxBandwidth / 2
	default:
		most = base.Quota * percent / 100
	}
	for p := w.Cgroup.Parent(); p != ""; p = p.Parent() {
		up, _ := x.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUMax}].(node.CPUMax)
		if facts.IsQuota(up) {
			most = min(most, base.Period*time.Duration(up.Quota.Microseconds())/time.Duration(max(up.Period.Microseconds(), 1)))
		}
	}
	return max(most.Truncate(time.Microsecond), base.Quota)
}

// partLimits returns the sum of the limits of the limited containers, and the sum
// of their present quotas. If no container is limited, the quota of base is 0.
func (x *burster) partLimits(w *node.Workload) (base node.CPUMax, now time.Duration) {
	base.Period = node.DefaultPeriod
	for i := range w.Containers {
		p := &w.Containers[i]
		_, own, limited := ownLimit(&x.snap.Knobs, w, p)
		if !limited {
			continue
		}
		of := func(quota time.Duration) time.Duration {
			return min(time.Duration(float64(quota)/float64(own.Period)*float64(base.Period)), maxBandwidth/8)
		}
		base.Quota = min(base.Quota+of(own.Quota), maxBandwidth/2)
		now = min(now+of(x.quotaNow(p.Cgroup, own)), maxBandwidth/2)
	}
	return base, now
}

// quotaNow returns the quota that Tenon gave a cgroup, or else base.Quota.
func (x *burster) quotaNow(at node.CgroupPath, base node.CPUMax) time.Duration {
	knob := node.Knob{Cgroup: at, File: node.FileCPUMax}
	now, _ := x.snap.Knobs.Now[knob].(node.CPUMax)
	if _, touched := x.snap.Knobs.Before[knob]; !touched || !facts.IsQuota(now) || now.Period != base.Period {
		return base.Quota
	}
	return now.Quota
}

// maxSavings returns the maximum savings: enough for PeriodSeconds with the
// largest quota.
func (b Config) maxSavings(base node.CPUMax) int64 {
	const longest, largest = 1e7, 1e4 // larger values would only overflow
	percent, seconds := min(max(int64(b.QuotaPercent)-100, 0), largest), min(max(b.PeriodSeconds, 0), longest)
	return min(int64(facts.MilliOf(base)), 1e6) * percent / 100 * seconds * 1000
}

// savings returns the savings after the elapsed time. CPU usage above the limit
// reduces the savings. CPU usage below thriftyShare increases them.
func (b Config) savings(l loan, base node.CPUMax, used unit.MilliCPU, elapsed time.Duration, rated bool) int64 {
	limit := facts.MilliOf(base)
	if over := used - limit; rated && (over >= 0 || used < limit*thriftyShare/100) {
		l.Savings -= int64(over) * elapsed.Milliseconds()
	}
	return min(max(l.Savings, 0), b.maxSavings(base))
}
