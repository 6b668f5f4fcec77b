package suppress

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// unwatched is the share of the capacity that BE work may use while no
	// agent runs. If cpuSuppressMinPercent is set, that key replaces it.
	unwatched unit.Percent = 5
	// unwatchedLeast is the smallest amount that unwatched may give. With less,
	// BE work on a small node might not be able to release its locks.
	unwatchedLeast unit.MilliCPU = 100
)

// SafeBounds returns the safe bounds of BE work while no agent runs: a quota for each contention
// root. Their sum is cpuSuppressMinPercent of the capacity, or 5 % by default. On cgroup v1 the
// result includes the quotas below the contention roots, because a parent's quota may not be
// smaller than its child's. Callers must apply a bound only if it narrows the knob.
//
// There are no safe bounds if CPU suppress is disabled. Then only a missed
// objective bounds BE work, and that bound stays. The weight of BE, or
// cpu.idle, protects the other work without an agent, too.
func SafeBounds(c Config, nodeCPUs facts.NodeCPUs, s node.Snapshot) []plan.Want {
	l := facts.LayoutOf(s)
	if !c.Enable || len(l.Roots) == 0 {
		return nil
	}
	capacity := unit.CPUs(nodeCPUs.WithIsolated(s).Counted(s).Len())
	share := max(capacity.Percent(unwatched), unwatchedLeast)
	reason := fmt.Sprintf("no agent runs: BE keeps %v of %v", share, capacity)
	if c.MinPercent > 0 {
		share = capacity.Percent(c.MinPercent)
		reason = fmt.Sprintf("no agent runs: BE keeps %v of %v", c.MinPercent, capacity)
	}
	share /= unit.MilliCPU(len(l.Roots))
	tops := topsOf(l, culprit.State{}, s)
	bound := func(p, root node.CgroupPath) plan.Want {
		most := share
		if t := tops[root]; t.limited {
			most = min(most, t.most)
		}
		return plan.Want{
			Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: node.FileCPUMax}, Value: node.Limit(most),
			Owner: plan.OwnerSuppress, Reason: reason, BE: true,
		}
	}
	var wants []plan.Want
	for _, m := range l.Roots {
		wants = append(wants, bound(m, m))
	}
	if s.Knobs.Kernel.CgroupVersion == 1 {
		for _, p := range l.QuotasBelow(&s) {
			m, _ := l.RootAbove(p)
			wants = append(wants, bound(p, m))
		}
	}
	return wants
}
