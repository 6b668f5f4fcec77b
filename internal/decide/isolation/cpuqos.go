package isolation

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config is the key cpuQOS of resource-qos-config. It gives LS work the CPU before BE work.
type Config struct {
	Enable bool `json:"enable"`
	// Means is node.FeatureCPUIdle if schedIdle of beClass is 1, and node.FeatureCPUWeight if it
	// is 0. It is empty if schedIdle is not set: then Tenon selects one of the two.
	Means node.Feature `json:"feature,omitempty"`
	// Mechanism is the strongest isolation mechanism to use: the preference order begins with it.
	// If it is empty, the order begins with the strongest of all mechanisms.
	Mechanism node.Mechanism `json:"mechanism,omitempty"`
	// Measured selects the measured order: unless Mechanism is set, the node uses
	// the floor (see docs/glossary.md) or what its trials have kept. If Measured
	// is false, the node uses the strongest mechanism.
	Measured bool `json:"measured,omitempty"`
	// NoTrials together with Measured means that the node always uses the floor
	// and runs no trial.
	NoTrials bool `json:"no_trials,omitempty"`
	// Hold and Headroom are the configured values of the fields of
	// node.Scheduler with the same names.
	Hold     node.Maybe[time.Duration] `json:"hold_ns,omitzero"`
	Headroom node.Maybe[int]           `json:"headroom,omitzero"`
	// Identity is the configured treatment of each class. If the treatment of a class
	// is below node.IdentityExpels, BE may run on the siblings of that class's CPUs.
	Identity map[node.Class]node.Identity `json:"identity,omitempty"`
	// SlicesUnmanaged says that Tenon does not change the slices of threads.
	SlicesUnmanaged bool `json:"slices_unmanaged,omitempty"`
	// CPUSetsManagedExternally has the same meaning as in facts.NodeCPUs. If it is
	// set, mechanisms that use cpusets are not available.
	CPUSetsManagedExternally bool `json:"cpusets_managed_externally,omitempty"`
}

// WeightWants returns the requested values (wants) of cpu.weight for the contention roots of BE
// work. With the mechanism weight, it gives them the least weight. With each other mechanism
// it makes them idle: a waking thread of any other cgroup preempts their threads at once. When the
// kernel places a waking thread, it counts a CPU that runs only threads of idle cgroups as idle. If
// the kernel has no cpu.idle, the contention roots get the least weight.
//
// The contention roots are idle even with stronger mechanisms, because such a
// mechanism may fail.
//
// Below the contention roots, WeightWants also sets the weights of workloads and containers that
// request one. These weights divide the CPU of BE work.
func WeightWants(c Config, mechanism node.Mechanism, l facts.Layout, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	yields := l.IdleCgroups(s)
	if !c.Enable { // no cgroup is idle, so the workloads have their own weights
		yields = slices.Sorted(slices.Values(l.Roots))
	}
	for _, m := range yields {
		w := plan.Want{Knob: node.Knob{Cgroup: m, File: node.FileCPUWeight}, Owner: plan.OwnerCPUQOS, BE: true}
		switch {
		case !c.Enable:
			w.Intent, w.Reason = plan.Release, "CPU QoS is off"
		case c.Means == node.FeatureCPUWeight:
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: schedIdle is 0" + l.Reach(m)
		case mechanism == node.MechanismWeight && s.Capabilities.Has(node.FeatureCPUIdle):
			w.Intent, w.Value = plan.Set, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
			w.Reason = "BE gets the least weight: an operator or the configuration requests it" + l.Reach(m)
			if c.Measured && c.Mechanism == "" && s.Isolation.Request.Mechanism == "" {
				w.Reason = "BE gets the least weight: cpu.idle must show in a trial that services wait less with it" + l.Reach(m)
			}
		case s.Capabilities.Has(node.FeatureCPUIdle):
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
		reason := "its contention root is unknown: its weight stays"
		if l.Others[p] > 0 {
			reason = "it also holds work of other classes: its weight stays"
		}
		wants = append(wants, plan.Want{
			Intent: plan.Release, Knob: node.Knob{Cgroup: p, File: node.FileCPUWeight}, Owner: plan.OwnerCPUQOS, Reason: reason, BE: true,
		})
	}
	return append(wants, weights(l, yields, s)...)
}

// weights returns the wants for weights that BE workloads and containers request. Their
// cgroups are below idle ones, where a weight divides only the CPU of BE work.
func weights(l facts.Layout, yields []node.CgroupPath, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	ask := func(m, p node.CgroupPath, name string, weight node.Maybe[unit.Weight]) {
		if v, asked := weight.Value(); asked && !slices.Contains(yields, p) && p != m && m.Contains(p) {
			wants = append(wants, plan.Want{
				Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: node.FileCPUWeight}, Value: node.CPUWeight{Weight: v}, Owner: plan.OwnerCPUQOS, BE: true,
				Reason: name + " has the weight of its CPU request",
			})
		}
	}
	for i := range s.Workloads {
		if m, w := l.RootOf[i], &s.Workloads[i]; m != "" {
			ask(m, w.Cgroup, string(w.ID), w.Weight)
			for _, p := range w.Containers {
				if p.Weight.Known() {
					ask(m, p.Cgroup, facts.PartName(w.ID, p.Name), p.Weight)
				}
			}
		}
	}
	return wants
}
