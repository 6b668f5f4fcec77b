package policy

import (
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/unit"
)

// cpuQOS owns cpu.weight of the cgroups at which best-effort work meets the
// others. It makes them idle: a waking task of any other group preempts them
// at once, and CPUs that run only them count as idle when the kernel places a
// waking task. Without cpu.idle the least weight is the next best thing.
func cpuQOS(on bool, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	for _, m := range meets(s) {
		w := plan.Want{Knob: node.Knob{Cgroup: m, File: node.FileCPUWeight}, Owner: "cpuqos", BE: true}
		switch {
		case !on:
			w.Intent, w.Reason = plan.Release, "CPU QoS is off"
		case s.Can.Can(node.MechCPUIdle):
			w.Intent, w.Value = plan.Set, node.CPUWeight{Idle: true}
			w.Reason = "BE runs only where no other work wants the CPU"
		default:
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: this kernel has no cpu.idle"
		}
		wants = append(wants, w)
	}
	return wants
}
