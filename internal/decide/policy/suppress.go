package policy

import (
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Suppress is the strategy "CPU suppress" of resource-threshold-config.
type Suppress struct {
	Enable bool `json:"enable"`
	// ThresholdPercent is the share of the capacity that all work together
	// may use before best-effort work gives way (cpuSuppressThresholdPercent,
	// 0 to 100; the field's default is 65).
	ThresholdPercent unit.Percent `json:"cpuSuppressThresholdPercent"`
	// MinPercent is the share of the capacity that best-effort work keeps
	// whatever the others use (cpuSuppressMinPercent, 0 to 100). It is the
	// same for both policies.
	MinPercent unit.Percent `json:"cpuSuppressMinPercent"`
	// Policy is how: SuppressQuota, SuppressCPUSet, or empty for the one that
	// fits the node (cpuSuppressPolicy).
	Policy SuppressPolicy `json:"cpuSuppressPolicy,omitempty"`
}

// KeepPercent is the share of the CPUs that BE keeps whatever the others use.
func (c Suppress) KeepPercent() unit.Percent {
	if !c.Enable {
		return 0
	}
	return c.MinPercent
}

// SuppressPolicy says by which knob best-effort work is bounded.
type SuppressPolicy string

// The suppress policies, named as in resource-threshold-config.
const (
	SuppressQuota  SuppressPolicy = "cfsQuota"
	SuppressCPUSet SuppressPolicy = "cpuset"
)

// cpusetFrom is the number of CPUs from which whole CPUs are fine enough a
// step: one of 20 CPUs is 5 % of the capacity.
const cpusetFrom = 20

// suppress owns cpu.max of the cgroups at which best-effort work meets the
// others, and cpuset.cpus there and, on cgroup v1, below. It bounds best-effort
// work to its budget, less what it gives up for objectives, by quota or by a
// set of CPUs. Off the CPUs in beside, the siblings of latency-sensitive work, it
// keeps best-effort work in any case, as long as that has its least, and off
// those that are reserved always. The first
// result is how much growth is left for the next call.
func suppress(c Suppress, pool facts.Pool, saved unit.MilliCPU, l facts.Layout, u facts.Use, g cpuBackOff, own grants, beside []unit.CPU, s node.Snapshot) (unit.MilliCPU, []plan.Want) {
	if len(l.Roots) == 0 {
		return 0, nil
	}
	x := suppressor{Suppress: c, Pool: pool, Layout: l, use: u, snap: s, cpus: pool.Counted(s), tops: topsOf(l, s), chain: chainOf(l, s), own: own, beside: beside}
	switch {
	case !c.Enable:
		_, sets := x.keepOff(plan.Release, "CPU suppress is off")
		return 0, append(x.unbounded("CPU suppress is off"), sets...)
	case u.Elapsed <= 0:
		// One snapshot without a rate is the start of every agent, not a
		// fault: what holds now holds until the next.
		_, sets := x.keepOff(plan.Abstain, noRate)
		return saved, append(x.abstain(), sets...)
	}
	x.budget = budgetOf(c, pool, u, s, x.cpus).beside(c, pool, u, s, x.cpus, own).less(g)
	whole := x.bySet()
	if x.gain = x.save(saved, u.Elapsed, whole); s.SLOViolated {
		// The rates are those of the quiet time before: best-effort work does
		// not grow by them, and what was saved up for that is lost.
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
	return max(x.gain-spent, 0), wants
}

const noRate = "no rate yet"

// held says why best-effort work gets less than its budget, or does not grow.
func (x suppressor) held() string {
	if x.snap.SLOViolated {
		return "; a service waits: BE does not grow now"
	}
	return "; growing step by step"
}

// A suppressor is one decision of suppress: what it decides on.
type suppressor struct {
	Suppress
	facts.Pool
	facts.Layout
	budget
	use   facts.Use
	snap  node.Snapshot
	cpus  unit.CPUSet // that are counted and shared
	tops  map[node.CgroupPath]top
	chain []link
	own   grants
	// beside are the CPUs to keep off, the first to give back first.
	beside []unit.CPU
}

// bySet reports whether best-effort work is bounded by a set of CPUs.
func (x suppressor) bySet() bool {
	if x.CPUSetsManagedExternally || x.Policy == SuppressQuota || (x.Policy != SuppressCPUSet && x.cpus.Len() < cpusetFrom) {
		return false
	}
	for _, m := range x.Roots {
		if _, known := x.snap.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUs}]; !known {
			return false // no cpuset controller there: a quota is the next best
		}
	}
	return true
}

// unbounded gives the quota of each meeting point back, or sets what the owner
// of its workload asked for.
func (x suppressor) unbounded(reason string) []plan.Want {
	var wants []plan.Want
	for _, m := range x.Roots {
		w := x.quotaWant(m)
		w.Intent, w.Reason = plan.Release, reason
		if t := x.tops[m]; t.asked {
			w.Intent, w.Value, w.Reason = plan.Set, node.Limit(t.most), t.reason
		}
		wants = append(wants, w)
	}
	return wants
}

// abstain leaves the quota of each meeting point as it is.
func (x suppressor) abstain() []plan.Want {
	var wants []plan.Want
	for _, m := range x.Roots {
		w := x.quotaWant(m)
		w.Intent, w.Reason = plan.Abstain, noRate
		wants = append(wants, w)
	}
	return wants
}

// anyCPU gives the CPU sets back, or leaves them as they are.
func (x suppressor) anyCPU(i plan.Intent, reason string) []plan.Want {
	var wants []plan.Want
	for _, k := range x.chain {
		w := x.cpusWant(k.cgroup)
		w.Intent, w.Reason = i, reason
		wants = append(wants, w)
	}
	return wants
}

func (x suppressor) quotaWant(m node.CgroupPath) plan.Want {
	return plan.Want{Knob: node.Knob{Cgroup: m, File: node.FileCPUMax}, Owner: plan.OwnerSuppress, BE: true}
}

func (x suppressor) cpusWant(p node.CgroupPath) plan.Want {
	return plan.Want{Knob: node.Knob{Cgroup: p, File: node.FileCPUs}, Owner: plan.OwnerSuppress, BE: true}
}
