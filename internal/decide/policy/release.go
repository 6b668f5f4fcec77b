package policy

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// releaseInSteps changes the wants that release a cpuset of cgroup v1 where the
// kernel would refuse the old set. It refuses a set that lacks a CPU or a NUMA node
// of a cgroup below. Another component may have made such a cgroup after Tenon's
// write, with the set that its parent had from Tenon. And a parent and its child
// cannot both exchange some CPUs for others in one step. Such a cgroup gets the old
// set and besides what is still in use below, and is released in a later tick.
func releaseInSteps(k node.Knobs, wants []plan.Want) {
	if k.Kernel.CgroupVersion != 1 {
		return
	}
	var sets []int                    // wants that release a set
	next := map[node.Knob]node.CPUs{} // what each of these cgroups and its children will have
	for i := range wants {
		w := &wants[i]
		if w.Intent != plan.Release || w.Knob.File != node.FileCPUs && w.Knob.File != node.FileMems {
			continue
		}
		if before, touched := k.Before[w.Knob].(node.CPUs); touched && k.Now[w.Knob] != node.Value(before) {
			sets, next[w.Knob] = append(sets, i), before
		}
	}
	if len(sets) == 0 {
		return
	}
	children := map[node.Knob][]node.Knob{}
	for c, v := range k.Now {
		up := node.Knob{Cgroup: c.Cgroup.Parent(), File: c.File}
		if _, is := next[up]; !is || c == up {
			continue
		}
		set, known := v.(node.CPUs)
		if !known {
			continue // if this cgroup has a CPU outside of the old set, the kernel refuses the write
		}
		children[up] = append(children[up], c)
		if _, is := next[c]; !is {
			next[c] = set
		}
	}
	for i := range wants {
		if set, is := wants[i].Outcome(k).(node.CPUs); is {
			if _, child := next[wants[i].Knob]; child {
				next[wants[i].Knob] = set
			}
		}
	}
	slices.SortFunc(sets, func(a, b int) int { return cmp.Compare(wants[b].Knob.Cgroup.Depth(), wants[a].Knob.Cgroup.Depth()) })
	for _, i := range sets {
		w := &wants[i]
		to := next[w.Knob].Set
		for _, c := range children[w.Knob] {
			to = to.Union(next[c].Set)
		}
		if now, known := k.Now[w.Knob].(node.CPUs); known && len(children[w.Knob]) > 0 && !now.Set.Contains(to) && !to.Contains(now.Set) {
			to = to.Union(now.Set)
		}
		if to == next[w.Knob].Set {
			continue
		}
		next[w.Knob] = node.CPUs{Set: to}
		w.Intent, w.Value = plan.Set, next[w.Knob]
		w.Reason += "; a cgroup below it has more than it had before Tenon"
	}
}
