package suppress

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Raised are the bounds of the pods whose quota LetStart has raised, by cgroup. The
// quota of such a pod says nothing about the CPU that BE had: Decide reads the bound.
type Raised map[node.CgroupPath]unit.MilliCPU

// LetStart raises the bounds of pods in which a container waits to start, so that the
// container runtime can write the limit of this container. It does so only on cgroup v1,
// where the kernel refuses a quota above that of the parent (kernel/sched/core.c:
// tg_cfs_schedulable_down). The containers that run keep the bound: package burst gives
// it to each of them. had is what the last call has raised. A pod that gets no bound now
// keeps its quota, and so stays raised.
func LetStart(l facts.Layout, had Raised, bounds []plan.Want, s node.Snapshot) (Raised, []plan.Want) {
	limits := l.StartLimits(&s)
	if limits == nil && had == nil {
		return nil, bounds
	}
	all, raised := slices.Clone(bounds), Raised{}
	for i := range all {
		w := &all[i]
		if w.Knob.File != node.FileCPUMax {
			continue
		}
		if bound, was := had[w.Knob.Cgroup]; was && w.Intent == plan.Abstain {
			raised[w.Knob.Cgroup] = bound
		}
		bound, isQuota := w.Value.(node.CPUMax)
		limit := limits[w.Knob.Cgroup]
		if own, known := facts.Original(s.Knobs, w.Knob).(node.CPUMax); known && facts.IsQuota(own) {
			limit = min(limit, facts.MilliOf(own))
		}
		if w.Intent != plan.Set || !isQuota || !facts.IsQuota(bound) || facts.MilliOf(bound) >= limit {
			continue
		}
		raised[w.Knob.Cgroup] = facts.MilliOf(bound)
		w.Value = node.Limit(limit)
		w.Reason = fmt.Sprintf("cgroup v1: a container with a CPU limit of %v waits to start; else %v: %s", limit, facts.MilliOf(bound), w.Reason)
	}
	if len(raised) == 0 {
		raised = nil
	}
	return raised, all
}
