package policy

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// unwatched is the share of the capacity that best-effort work may have
	// when nobody watches the node and cpuSuppressMinPercent does not say it.
	unwatched unit.Percent = 5
	// unwatchedLeast is the least that unwatched comes to, so that on a small
	// node best-effort work still ends what it holds locks for.
	unwatchedLeast unit.MilliCPU = 100
)

// SafeBounds returns what best-effort work may have when nobody watches: a
// quota for each place at which it meets the others, with
// cpuSuppressMinPercent of the capacity, or 5 % where that is not set, for all
// of them together. On cgroup v1 the quotas below these places come with them,
// since a parent may not have less than its child. The bounds are the most
// that a knob may allow: they are for where they narrow.
//
// They exist only where CPU suppress is on. Without it, best-effort work at
// full speed is what the owner wants with the agent alive, too; and what
// protects the others then, cpu.idle, works in the kernel without an agent.
func SafeBounds(c Config, s node.Snapshot) []plan.Want {
	l := facts.LayoutOf(s)
	if !c.Suppress.Enable || len(l.Roots) == 0 {
		return nil
	}
	capacity := unit.CPUs(c.Pool.Counted(s).Len())
	share := max(capacity.Percent(unwatched), unwatchedLeast)
	reason := fmt.Sprintf("nobody watches: BE keeps %v of %v", share, capacity)
	if c.Suppress.MinPercent > 0 {
		share = capacity.Percent(c.Suppress.MinPercent)
		reason = fmt.Sprintf("nobody watches: BE keeps %v of %v", c.Suppress.MinPercent, capacity)
	}
	share /= unit.MilliCPU(len(l.Roots))
	tops := topsOf(l, s)
	bound := func(p, meet node.CgroupPath) plan.Want {
		most := share
		if t := tops[meet]; t.limited {
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
		for _, p := range quotasBelow(l, s) {
			m, _ := l.RootAbove(p)
			wants = append(wants, bound(p, m))
		}
	}
	return wants
}
