package suppress

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// LetStart raises the bounds of pods in which a container waits to start, so that the
// container runtime can write the limit of this container. It does so only on cgroup v1,
// where the kernel refuses a quota above that of the parent (kernel/sched/core.c:
// tg_cfs_schedulable_down). The containers that run keep the bound: package burst gives
// it to each of them.
func LetStart(l facts.Layout, bounds []plan.Want, s node.Snapshot) []plan.Want {
	limits := l.StartLimits(&s)
	if limits == nil {
		return bounds
	}
	all := slices.Clone(bounds)
	for i := range all {
		w := &all[i]
		bound, isQuota := w.Value.(node.CPUMax)
		limit := limits[w.Knob.Cgroup]
		if own, known := facts.Original(s.Knobs, w.Knob).(node.CPUMax); known && facts.IsQuota(own) {
			limit = min(limit, facts.MilliOf(own))
		}
		if w.Knob.File != node.FileCPUMax || w.Intent != plan.Set || !isQuota || !facts.IsQuota(bound) || facts.MilliOf(bound) >= limit {
			continue
		}
		w.Value = node.Limit(limit)
		w.Reason = fmt.Sprintf("cgroup v1: a container with a CPU limit of %v waits to start; else %v: %s", limit, facts.MilliOf(bound), w.Reason)
	}
	return all
}
