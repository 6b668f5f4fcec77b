package facts

import (
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// AnyOf reports whether the function match returns true for one of the
// workloads. Unlike slices.ContainsFunc it copies none of them, because a
// Workload is large.
func AnyOf(all []node.Workload, match func(*node.Workload) bool) bool {
	for i := range all {
		if match(&all[i]) {
			return true
		}
	}
	return false
}

// QuotasBelow returns a sorted list of cgroups below contention roots. Each of
// them has a quota, had one before Tenon's first write, or will get one.
func (l *Layout) QuotasBelow(s *node.Snapshot) []node.CgroupPath {
	asked := map[node.CgroupPath]bool{}
	ask := func(p node.CgroupPath, limited bool) {
		if limited || asked[p] {
			asked[p] = limited // of several limits for p, the last one decides
		}
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		ask(w.Cgroup, w.CPULimit.Known())
		for j := range w.Containers {
			ask(w.Containers[j].Cgroup, w.Containers[j].CPULimit.Known())
		}
	}
	var all []node.CgroupPath
	for k, v := range s.Knobs.Now {
		if k.File != node.FileCPUMax {
			continue
		}
		now, _ := v.(node.CPUMax)
		was, _ := Original(s.Knobs, k).(node.CPUMax)
		if !IsQuota(now) && !IsQuota(was) && !asked[k.Cgroup] {
			continue
		}
		if root, below := l.RootAbove(k.Cgroup); below && root != k.Cgroup {
			all = append(all, k.Cgroup)
		}
	}
	slices.Sort(all)
	return all
}
