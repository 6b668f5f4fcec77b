// Package suppress decides how much CPU best-effort work may use: CPU suppress,
// the back-off while an objective is missed, and the CPUs that BE may never use.
// It limits BE by a quota or by a set of CPUs.
package suppress

import (
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/writeconflict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config is the strategy "CPU suppress" of resource-threshold-config.
type Config struct {
	Enable bool `json:"enable"`
	// ThresholdPercent is the share of the capacity that all work together may
	// use. If its CPU usage is higher, Tenon reduces the CPU of BE
	// (cpuSuppressThresholdPercent, 0 to 100; Koordinator's default is 65).
	ThresholdPercent unit.Percent `json:"cpuSuppressThresholdPercent"`
	// MinPercent is the share of the capacity that BE keeps, however much other work
	// uses (cpuSuppressMinPercent, 0 to 100). It applies with both policies.
	MinPercent unit.Percent `json:"cpuSuppressMinPercent"`
	// Policy is ByQuota or ByCPUSet (cpuSuppressPolicy). If it is
	// empty, the number of CPUs of the node decides.
	Policy Policy `json:"cpuSuppressPolicy,omitempty"`
}

// KeepPercent returns the share of the CPUs that BE keeps, however much other
// work uses. It is 0 if suppress is disabled.
func (c Config) KeepPercent() unit.Percent {
	if !c.Enable {
		return 0
	}
	return c.MinPercent
}

// strategyDuring returns the strategy that applies during a back-off. If there
// is no threshold, BE has no bound until an objective is missed because of BE.
// Then the back-off begins with all the CPU that other work leaves.
func (c Config) strategyDuring(g BackOff) Config {
	if !c.Enable && g.Permille > 0 {
		c.Enable, c.ThresholdPercent = true, 100
	}
	return c
}

// Policy selects the knob that limits the CPU of BE.
type Policy string

// The suppress policies, named as in resource-threshold-config.
const (
	ByQuota  Policy = "cfsQuota"
	ByCPUSet Policy = "cpuset"
)

// cpusetFrom is a number of CPUs. On a node with at least this many, the default policy gives
// whole CPUs: one of 20 CPUs is 5 % of the capacity, and steps of this size are fine enough.
const cpusetFrom = 20

// Input holds what Decide reads besides the configuration.
type Input struct {
	NodeCPUs facts.NodeCPUs
	Layout   facts.Layout
	Use      facts.Use
	BackOff  BackOff
	Single   culprit.State // the bounds of single workloads
	Own      hold.Grants
	Snapshot node.Snapshot
	// Avoid lists the CPUs that BE should avoid. If the minimum of BE needs some
	// of them, BE gets them back in the order of this list.
	Avoid []unit.CPU
	// Seated are the CPUs that BE work with seats could use in the tick before.
	Seated unit.CPUSet
	Raised Raised // by LetStart in the tick before
}

// Decide owns cpu.max and cpuset.cpus of the contention roots of BE. On cgroup v1
// it also owns cpuset.cpus below them. It limits BE to its budget minus the
// back-off, by a quota or by a set of CPUs. It always keeps BE off the reserved
// CPUs. As far as the minimum of BE allows, it also keeps BE off the siblings of
// CPUs with LS work. The amount by which BE may grow increases with time: saved is
// what the last call left of it, and the first result is what this call leaves. The
// second result is the back-off, which has observed the budget.
func Decide(c Config, saved unit.MilliCPU, in Input) (unit.MilliCPU, BackOff, []plan.Want) {
	l, s, u, g := in.Layout, in.Snapshot, in.Use, in.BackOff
	if len(l.Roots) == 0 {
		return 0, g, nil
	}
	c = c.strategyDuring(g)
	x := suppressor{Config: c, NodeCPUs: in.NodeCPUs, Layout: l, use: u, snap: s, cpus: in.NodeCPUs.Counted(s), tops: topsOf(l, in.Single, s), raised: in.Raised, chain: chainOf(l, s), own: in.Own, avoid: in.Avoid, seated: in.Seated}
	switch {
	case !c.Enable:
		_, sets := x.keepOff(plan.Release, "CPU suppress is off")
		return 0, g, append(x.removeBound("CPU suppress is off"), sets...)
	case u.Elapsed <= 0:
		// The first snapshot of an agent has no rates. The knobs keep their
		// present values until the next snapshot.
		_, sets := x.keepOff(plan.Abstain, noRate)
		return saved, g, append(x.abstain(), sets...)
	}
	x.Budget = BudgetOf(c, in.NodeCPUs, u, s, x.cpus).limitToCPUs(c, in.NodeCPUs, u, s, x.cpus, in.Own)
	g = g.observe(x.Budget, u.Elapsed)
	x.Budget = x.Budget.subtract(g)
	whole := x.limitsBySet()
	if whole && x.isContested(node.FileCPUMax) {
		x.Reason = "another component keeps writing the quota, so whole CPUs limit BE; " + x.Reason
	}
	if x.gain = x.Save(saved, u.Elapsed, whole); s.SLOViolated {
		// A service waits now, but the rates are older and do not show it yet.
		// So BE must not grow, and loses its saved growth.
		x.gain = 0
	}
	var spent unit.MilliCPU
	var wants []plan.Want
	if whole {
		spent, wants = x.giveCPUs()
	} else {
		spent, wants = x.giveQuota()
		chosen, sets := x.keepOff(plan.Release, "CPU suppress works by quota here")
		x.corner(wants, chosen)
		wants = append(wants, sets...)
	}
	return max(x.gain-spent, 0), g, wants
}

const noRate = "no rate yet"

// holdReason returns the part of a reason that says why BE does not get its
// full budget now.
func (x *suppressor) holdReason() string {
	if x.snap.SLOViolated {
		return "; a service waits: BE does not grow now"
	}
	return "; growing step by step"
}

// A suppressor holds the input of one decision.
type suppressor struct {
	Config
	facts.NodeCPUs
	facts.Layout
	Budget
	use    facts.Use
	snap   node.Snapshot
	cpus   unit.CPUSet // the CPUs that make up the capacity
	tops   map[node.CgroupPath]top
	raised Raised
	chain  []link
	own    hold.Grants
	avoid  []unit.CPU  // see Input
	seated unit.CPUSet // see Input
}

// limitsBySet reports whether a set of CPUs limits BE, and not a quota.
//
// If another component writes one of the two knobs again and again, the other
// knob limits BE. Otherwise BE would have no limit during such a conflict.
func (x *suppressor) limitsBySet() bool {
	quota, sets := x.isContested(node.FileCPUMax), x.isContested(node.FileCPUs)
	small := x.Policy == ByQuota || (x.Policy != ByCPUSet && x.cpus.Len() < cpusetFrom)
	if x.CPUSetsManagedExternally || sets && !quota || small && (sets || !quota) {
		return false
	}
	for _, m := range x.Roots {
		if _, known := x.snap.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUs}]; !known {
			return false // without the cpuset controller, Tenon must use a quota
		}
	}
	return true
}

// isContested reports whether another component writes this knob of a contention
// root again and again.
func (x *suppressor) isContested(f node.File) bool {
	return slices.ContainsFunc(x.Roots, func(m node.CgroupPath) bool { return writeconflict.Contested(x.snap, node.Knob{Cgroup: m, File: f}) })
}

// removeBound removes the bound of BE: it releases the quota of each contention
// root, or sets it to the CPU limit of its workload.
func (x *suppressor) removeBound(reason string) []plan.Want {
	var wants []plan.Want
	for _, m := range x.Roots {
		w := x.quotaWant(m)
		w.Intent, w.Reason = plan.Release, reason
		if t := x.tops[m]; t.asked {
			w.Intent, w.Value, w.Reason = plan.Set, t.limit(t.most), t.reason
		}
		wants = append(wants, w)
	}
	return wants
}

// abstain leaves the quota of each contention root unchanged.
func (x *suppressor) abstain() []plan.Want {
	var wants []plan.Want
	for _, m := range x.Roots {
		w := x.quotaWant(m)
		w.Intent, w.Reason = plan.Abstain, noRate
		wants = append(wants, w)
	}
	return wants
}

// anyCPU returns wants for all cpusets of BE with the intent i: Release, or
// Abstain to leave them unchanged.
func (x *suppressor) anyCPU(i plan.Intent, reason string) []plan.Want {
	wants := make([]plan.Want, 0, len(x.chain))
	for _, k := range x.chain {
		w := x.cpusWant(k.cgroup)
		w.Intent, w.Reason = i, reason
		wants = append(wants, w)
	}
	return wants
}

func (x *suppressor) quotaWant(m node.CgroupPath) plan.Want {
	return plan.Want{Knob: node.Knob{Cgroup: m, File: node.FileCPUMax}, Owner: plan.OwnerSuppress, BE: true}
}

func (x *suppressor) cpusWant(p node.CgroupPath) plan.Want {
	return plan.Want{Knob: node.Knob{Cgroup: p, File: node.FileCPUs}, Owner: plan.OwnerSuppress, BE: true}
}
