package suppress

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// giveQuota gives each contention root a quota: its part of the CPU that BE may
// use. spent is the growth of the sum of these quotas.
func (x *suppressor) giveQuota() (spent unit.MilliCPU, wants []plan.Want) {
	var has, gets unit.MilliCPU
	bounded := false
	for _, m := range x.Roots {
		if now, finite := x.quotaNow(m); finite {
			has, bounded = has+facts.MilliOf(now), true
		}
	}
	may := x.May
	if bounded {
		may = max(min(may, has+x.gain), x.Least)
	}
	for i, share := range x.share(may) {
		w := x.quotaWant(x.Roots[i])
		w.Intent, w.Reason = plan.Set, x.Reason
		if len(x.Roots) > 1 {
			w.Reason += fmt.Sprintf("; %v of %v by use", share, may)
		}
		if may < x.May {
			w.Reason += x.holdReason()
		}
		t := x.tops[x.Roots[i]]
		if t.limited && share > t.most {
			share, w.Reason = t.most, t.reason
		}
		limit := t.limit(share)
		w.Value = limit
		now, finite := x.quotaNow(x.Roots[i])
		hold := finite && x.snap.SLOViolated && share > facts.MilliOf(now)
		near := finite && x.isNear(facts.MilliOf(now), share) && (now.Period == culprit.Period) == (limit.Period == culprit.Period)
		if hold || near && (!t.limited || facts.MilliOf(now) <= t.most) {
			w.Value = now
		}
		gets += facts.MilliOf(w.Value.(node.CPUMax))
		wants = append(wants, w)
	}
	if bounded {
		spent = max(gets-has, 0)
	}
	return spent, wants
}

// isNear reports whether a change of quota is too small to be written. The
// minimum of BE is always written exactly.
func (x *suppressor) isNear(now, to unit.MilliCPU) bool {
	small := x.Capacity.Percent(Deadband) / unit.MilliCPU(len(x.Roots))
	return x.May > x.Least && to-now <= small && now-to <= small
}

// share divides an amount among the contention roots: a quarter in equal parts, and
// the rest in proportion to their CPU usage. The equal part prevents starvation,
// and lets work that wakes up show its demand. Idle work gets nothing of the rest.
func (x *suppressor) share(may unit.MilliCPU) []unit.MilliCPU {
	used := make(map[node.CgroupPath]unit.MilliCPU, len(x.Roots))
	var total unit.MilliCPU
	for i := range x.snap.Workloads {
		if m, w := x.RootOf[i], &x.snap.Workloads[i]; m != "" {
			u := max(x.use.Workload[w.ID], x.use.Latest[w.ID])
			used[m] += u
			total += u
		}
	}
	even := may / unit.MilliCPU(len(x.Roots))
	shares := make([]unit.MilliCPU, len(x.Roots))
	for i, m := range x.Roots {
		shares[i] = even
		if total > 0 {
			shares[i] = even/4 + (may-may/4)*used[m]/total
		}
	}
	return shares
}

// quotaNow returns the present quota of a contention root, and whether it has one. A
// quota that LetStart has raised is no CPU that BE had: in place of it counts the bound.
func (x *suppressor) quotaNow(m node.CgroupPath) (node.CPUMax, bool) {
	now, known := x.snap.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUMax}].(node.CPUMax)
	finite := known && facts.IsQuota(now)
	if bound, raised := x.raised[m]; raised && finite && bound < facts.MilliOf(now) {
		return node.Limit(bound), true
	}
	return now, finite
}

// A top is the largest quota that a contention root may have.
type top struct {
	most    unit.MilliCPU
	limited bool // there is a limit
	asked   bool // most is the CPU limit of a workload, or its bound
	bounded bool // most is the bound of a workload
	reason  string
}

// limit returns the quota of a contention root that may use m.
func (t top) limit(m unit.MilliCPU) node.CPUMax {
	if t.bounded {
		return culprit.Limit(m)
	}
	return node.Limit(m)
}

// topsOf returns the top of each contention root: the quota that the root had before Tenon, or
// the CPU limit of a workload whose own cgroup is the root, or the bound that this workload alone
// has, if that is smaller.
func topsOf(l facts.Layout, single culprit.State, s node.Snapshot) map[node.CgroupPath]top {
	tops := map[node.CgroupPath]top{}
	for _, m := range l.Roots {
		knob := node.Knob{Cgroup: m, File: node.FileCPUMax}
		if own, known := facts.Original(s.Knobs, knob).(node.CPUMax); known && facts.IsQuota(own) {
			tops[m] = top{most: facts.MilliOf(own), limited: true, reason: fmt.Sprintf("%s had a CPU limit of %v before Tenon", m, facts.MilliOf(own))}
		}
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if m, asked := w.CPULimit.Value(); asked && l.IsRoot(w.Cgroup) {
			tops[w.Cgroup] = top{most: m, limited: true, asked: true, reason: fmt.Sprintf("%s has a CPU limit of %v", w.ID, m)}
		}
		if b, bounded := single.Bounds[w.ID]; bounded && l.IsRoot(w.Cgroup) && (!tops[w.Cgroup].limited || b.May < tops[w.Cgroup].most) {
			tops[w.Cgroup] = top{most: b.May, limited: true, asked: true, bounded: true, reason: b.Text()}
		}
	}
	return tops
}
