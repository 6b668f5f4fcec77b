package policy

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/pick"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/unit"
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
	// same for both policies; one whole CPU is the least a cpuset can give.
	MinPercent unit.Percent `json:"cpuSuppressMinPercent"`
	// Policy is how: SuppressQuota, SuppressCPUSet, or empty for the one that
	// fits the node (cpuSuppressPolicy).
	Policy SuppressPolicy `json:"cpuSuppressPolicy,omitempty"`
	// CPUs is the set that is counted and shared: the capacity is its size.
	// Empty means all online CPUs.
	CPUs unit.CPUSet `json:"cpus,omitzero"`
}

// SuppressPolicy says by which knob best-effort work is bounded.
type SuppressPolicy string

// The suppress policies, named as in resource-threshold-config.
const (
	SuppressQuota  SuppressPolicy = "cfsQuota"
	SuppressCPUSet SuppressPolicy = "cpuset"
)

const (
	// cpusetFrom is the number of CPUs from which whole CPUs are fine enough a
	// step: one of 20 CPUs is 5 % of the capacity.
	cpusetFrom = 20
	// growth is how much of the capacity best-effort work may gain in a
	// second. Giving way is never limited.
	growth unit.Percent = 10
	// deadband is the change, in percent of the capacity, that is not worth a
	// write.
	deadband unit.Percent = 1
)

// suppress owns cpu.max of the cgroups at which best-effort work meets the
// others, and cpuset.cpus from there down to the workloads. It bounds BE to
//
//	capacity × threshold − use of all other work on these CPUs
//
// which is the formula of the field, with the use of the system taken as what
// the CPUs were busy with beside the workloads.
func suppress(c Suppress, u use, s node.Snapshot) []plan.Want {
	all := meets(s)
	if len(all) == 0 {
		return nil
	}
	if !c.Enable {
		return append(release(all, node.FileCPUMax, "CPU suppress is off"),
			release(cpusetChain(s, all), node.FileCPUs, "CPU suppress is off")...)
	}
	cpus := s.Topology.All()
	if !c.CPUs.Empty() {
		cpus = cpus.Intersect(c.CPUs)
	}
	b := budgetOf(c, u, s, cpus)
	if c.Policy == SuppressCPUSet || (c.Policy == "" && cpus.Len() >= cpusetFrom) {
		return append(release(all, node.FileCPUMax, "CPU suppress works by cpuset here"),
			b.byCPUSet(s, cpus, cpusetChain(s, all))...)
	}
	return append(b.byQuota(s, all),
		release(cpusetChain(s, all), node.FileCPUs, "CPU suppress works by quota here")...)
}

// A budget is what best-effort work may use, and how that came about.
type budget struct {
	capacity, least unit.MilliCPU
	may             unit.MilliCPU
	grow            unit.MilliCPU // how much more BE may get in this tick
	known           bool
	first           bool // nothing has been measured yet
	reason          string
}

func budgetOf(c Suppress, u use, s node.Snapshot, cpus unit.CPUSet) budget {
	b := budget{capacity: unit.CPUs(cpus.Len()), known: true}
	b.least = max(b.capacity.Percent(c.MinPercent), unit.MilliCPU(node.MinQuota*1000/node.DefaultPeriod))
	var others, mean, be unit.MilliCPU
	var missing []string
	for _, w := range s.Workloads {
		used, known := u.Workload[w.ID]
		switch {
		case !known && w.Class != node.BE:
			missing = append(missing, string(w.ID))
		case w.Class == node.BE:
			be += used
		default:
			// A service that needs more gets it at once; that it needs less
			// is believed only as the mean follows.
			others += max(used, u.Latest[w.ID])
			mean += used
		}
	}
	b.first = len(u.Workload) == 0
	b.grow = max(unit.MilliCPU(float64(b.capacity.Percent(growth))*u.Elapsed.Seconds()), 1)
	if len(missing) > 0 {
		b.known, b.may = false, b.least
		b.reason = "the CPU use of " + strings.Join(missing, ", ") + " is unknown: BE keeps its least"
		return b
	}
	var busy unit.MilliCPU
	for cpu := range cpus.All() {
		busy += u.CPU[cpu]
	}
	system := max(busy-mean-be, 0)
	b.may = max(b.capacity.Percent(c.ThresholdPercent)-others-system, b.least)
	b.reason = fmt.Sprintf("%v of %v - %v in use by others - %v by the system", c.ThresholdPercent, b.capacity, others, system)
	return b
}

// byQuota shares the budget evenly over the meeting points.
func (b budget) byQuota(s node.Snapshot, all []node.CgroupPath) []plan.Want {
	var wants []plan.Want
	for _, m := range all {
		knob := node.Knob{Cgroup: m, File: node.FileCPUMax}
		w := plan.Want{Intent: plan.Set, Knob: knob, Owner: "suppress", Reason: b.reason, BE: true}
		now, _ := s.Knobs.Now[knob].(node.CPUMax)
		target := b.may / unit.MilliCPU(len(all))
		switch {
		case !b.known && b.first:
			// One tick without a rate is the start of every agent, not a
			// fault: what holds now holds for one more tick.
			w.Intent, w.Reason = plan.Abstain, "no rate yet"
		case now.Period > 0 && now.Quota != node.NoQuota:
			target = b.step(now, target, len(all))
		}
		w.Value = node.Limit(target)
		wants = append(wants, w)
	}
	return wants
}

// step limits growth and leaves small changes alone.
func (b budget) step(now node.CPUMax, target unit.MilliCPU, share int) unit.MilliCPU {
	has := unit.MilliCPU(now.Cores() * 1000)
	delta := target - has
	if small := b.capacity.Percent(deadband) / unit.MilliCPU(share); delta <= small && delta >= -small && target > b.least {
		return has
	}
	return min(target, has+max(b.grow/unit.MilliCPU(share), 1))
}

// byCPUSet gives every cgroup of the chain the same CPUs: at least one.
func (b budget) byCPUSet(s node.Snapshot, cpus unit.CPUSet, chain []node.CgroupPath) []plan.Want {
	n := max(int((b.may+999)/1000), 1)
	set := pick.BestEffort(s.Topology, cpus, unit.CPUSet{}, n)
	var wants []plan.Want
	for _, p := range chain {
		knob := node.Knob{Cgroup: p, File: node.FileCPUs}
		w := plan.Want{Intent: plan.Set, Knob: knob, Value: node.CPUs{Set: set}, Owner: "suppress", Reason: b.reason, BE: true}
		switch now, known := s.Knobs.Now[knob].(node.CPUs); {
		case !b.known && b.first:
			w.Intent, w.Reason = plan.Abstain, "no rate yet"
		case known && !now.Set.Empty() && now.Set.Len() < n:
			grow := max(int((b.grow+999)/1000), 1)
			w.Value = node.CPUs{Set: pick.BestEffort(s.Topology, cpus, unit.CPUSet{}, min(n, now.Set.Len()+grow))}
		}
		wants = append(wants, w)
	}
	return wants
}

// cpusetChain lists the meeting points and every cgroup from there down to
// the best-effort workloads: on cgroup v1 a child's cpuset must lie within its
// parent's, so all of them move together.
func cpusetChain(s node.Snapshot, all []node.CgroupPath) []node.CgroupPath {
	var chain []node.CgroupPath
	seen := map[node.CgroupPath]bool{}
	for _, m := range all {
		for _, w := range s.Workloads {
			for p := w.Cgroup; w.Class == node.BE && m.Contains(p); p = p.Parent() {
				if !seen[p] {
					seen[p] = true
					chain = append(chain, p)
				}
			}
		}
	}
	return chain
}

func release(all []node.CgroupPath, f node.File, reason string) []plan.Want {
	var wants []plan.Want
	for _, p := range all {
		wants = append(wants, plan.Want{Intent: plan.Release, Knob: node.Knob{Cgroup: p, File: f}, Owner: "suppress", Reason: reason, BE: true})
	}
	return wants
}
