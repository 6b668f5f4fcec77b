package policy

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
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
func cpuQOS(c CPUQOS, rung node.Rung, l facts.Layout, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	yields := l.IdleCgroups(s)
	if !c.Enable { // nothing yields: what shares inside has its own weight
		yields = slices.Sorted(slices.Values(l.Roots))
	}
	for _, m := range yields {
		w := plan.Want{Knob: node.Knob{Cgroup: m, File: node.FileCPUWeight}, Owner: plan.OwnerCPUQOS, BE: true}
		switch {
		case !c.Enable:
			w.Intent, w.Reason = plan.Release, "CPU QoS is off"
		case c.Means == node.MechCPUWeight:
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: schedIdle is 0" + l.Reach(m)
		case rung == node.RungWeight && s.Can.Can(node.MechCPUIdle):
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: that is asked for" + l.Reach(m)
		case s.Can.Can(node.MechCPUIdle):
			w.Intent, w.Value = plan.Set, node.CPUWeight{Idle: true}
			w.Reason = "BE runs only where no other work wants the CPU" + l.Reach(m)
		default:
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: this kernel has no cpu.idle" + l.Reach(m)
		}
		wants = append(wants, w)
	}
	for _, p := range l.Shared {
		if l.IsRoot(p) {
			continue
		}
		reason := "nobody knows where it meets other work: its weight stays"
		if l.Others[p] > 0 {
			reason = "it holds other work, too, which must not yield: its weight stays"
		}
		wants = append(wants, plan.Want{
			Intent: plan.Release, Knob: node.Knob{Cgroup: p, File: node.FileCPUWeight}, Owner: plan.OwnerCPUQOS, Reason: reason, BE: true,
		})
	}
	return append(wants, weights(l, yields, s)...)
}

// weights are those that best-effort workloads and their parts ask for, inside of
// the places where they yield: there a weight decides among them alone.
func weights(l facts.Layout, yields []node.CgroupPath, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	ask := func(m, p node.CgroupPath, name string, weight node.Maybe[unit.Weight]) {
		_, is := slices.BinarySearch(yields, p)
		if v, asked := weight.Value(); asked && !is && p != m && m.Contains(p) {
			wants = append(wants, plan.Want{
				Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: node.FileCPUWeight}, Value: node.CPUWeight{Weight: v}, Owner: plan.OwnerCPUQOS, BE: true,
				Reason: name + " has the weight of what it counts on",
			})
		}
	}
	for i, w := range s.Workloads {
		if m := l.RootOf[i]; m != "" {
			ask(m, w.Cgroup, string(w.ID), w.Weight)
			for _, p := range w.Parts {
				ask(m, p.Cgroup, facts.PartName(w, p), p.Weight)
			}
		}
	}
	return wants
}
