package policy

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/unit"
)

// CPUQOS is cpuQOS of resource-qos-config: latency-sensitive work gets the CPU
// before best-effort work.
type CPUQOS struct {
	Enable bool `json:"enable"`
	// Means is node.MechCPUIdle or node.MechCPUWeight, where the owner chose
	// (schedIdle of beClass, 1 and 0). Empty: the strongest that the node has.
	Means node.Mechanism `json:"means,omitempty"`
	// Rung is where the ladder begins, where the owner chose: the strongest that
	// is used. Empty: the strongest that the node can carry.
	Rung node.Rung `json:"rung,omitempty"`
	// Hold and Headroom are those of node.Scheduler, where the owner chose.
	Hold     node.Maybe[time.Duration] `json:"hold_ns,omitzero"`
	Headroom node.Maybe[int]           `json:"headroom,omitzero"`
	// Identity is how each class is treated, where the owner chose: of the
	// latency-sensitive ones, those below node.IdentityExpels do not have their
	// siblings kept clean.
	Identity map[node.Class]node.Identity `json:"identity,omitempty"`
	// SlicesKept: the slices of threads stay as they are.
	SlicesKept bool `json:"slices_kept,omitempty"`
	// SetsKept is as in Suppress: a rung that works by sets of CPUs is none.
	SetsKept bool `json:"sets_kept,omitempty"`
}

// cpuQOS owns cpu.weight of the cgroups at which best-effort work meets the
// others. It makes them idle: a waking task of any other group preempts them
// at once, and CPUs that run only them count as idle when the kernel places a
// waking task. Without cpu.idle the least weight is the next best thing.
//
// That holds below every rung of the ladder: whatever becomes of the rung in
// use, best-effort work is harmless at once.
//
// Below these places it also owns the weights of workloads that ask for one, and
// of their parts: how best-effort work shares what it gets.
func cpuQOS(c CPUQOS, rung node.Rung, l layout, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	yields := l.yields(s)
	if !c.Enable { // nothing yields: what shares inside has its own weight
		yields = slices.Sorted(slices.Values(l.meets))
	}
	for _, m := range yields {
		w := plan.Want{Knob: node.Knob{Cgroup: m, File: node.FileCPUWeight}, Owner: "cpuqos", BE: true}
		switch {
		case !c.Enable:
			w.Intent, w.Reason = plan.Release, "CPU QoS is off"
		case c.Means == node.MechCPUWeight:
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: schedIdle is 0" + l.reach(m)
		case rung == node.RungWeight && s.Can.Can(node.MechCPUIdle):
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: that is asked for" + l.reach(m)
		case s.Can.Can(node.MechCPUIdle):
			w.Intent, w.Value = plan.Set, node.CPUWeight{Idle: true}
			w.Reason = "BE runs only where no other work wants the CPU" + l.reach(m)
		default:
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: this kernel has no cpu.idle" + l.reach(m)
		}
		wants = append(wants, w)
	}
	for _, p := range l.shared {
		if l.isMeet[p] {
			continue
		}
		reason := "nobody knows where it meets other work: its weight stays"
		if l.others[p] > 0 {
			reason = "it holds other work, too, which must not yield: its weight stays"
		}
		wants = append(wants, plan.Want{
			Intent: plan.Release, Knob: node.Knob{Cgroup: p, File: node.FileCPUWeight}, Owner: "cpuqos", Reason: reason, BE: true,
		})
	}
	return append(wants, l.weights(yields, s)...)
}

// yields are the cgroups whose weight makes best-effort work yield: the meets,
// or where somebody else keeps the weight of one, those below it.
func (l layout) yields(s node.Snapshot) []node.CgroupPath {
	var all []node.CgroupPath
	for i, w := range s.Workloads {
		switch m := l.of[i]; {
		case m == "":
		case m != w.Yields && m.Contains(w.Yields) && w.Yields.Contains(w.Cgroup):
			all = append(all, w.Yields)
		default:
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// weights are those that best-effort workloads and their parts ask for, inside of
// the places where they yield: there a weight decides among them alone.
func (l layout) weights(yields []node.CgroupPath, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	ask := func(m, p node.CgroupPath, name string, weight node.Maybe[unit.Weight]) {
		_, is := slices.BinarySearch(yields, p)
		if v, asked := weight.Value(); asked && !is && p != m && m.Contains(p) {
			wants = append(wants, plan.Want{
				Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: node.FileCPUWeight}, Value: node.CPUWeight{Weight: v}, Owner: "cpuqos", BE: true,
				Reason: name + " has the weight of what it counts on",
			})
		}
	}
	for i, w := range s.Workloads {
		if m := l.of[i]; m != "" {
			ask(m, w.Cgroup, string(w.ID), w.Weight)
			for _, p := range w.Parts {
				ask(m, p.Cgroup, partName(w, p), p.Weight)
			}
		}
	}
	return wants
}

// reach says how far a weight at m reaches: weights decide between siblings, so
// what lies outside m's parent competes with the parent.
func (l layout) reach(m node.CgroupPath) string {
	up := m.Parent()
	if up == "" || l.others[up] == l.others[""] {
		return ""
	}
	return fmt.Sprintf(", within %s: against work outside, the weight of %s decides", up, up)
}

// partName is how sentences name a part of a workload.
func partName(w node.Workload, p node.Part) string { return string(w.ID) + " " + p.Name }
