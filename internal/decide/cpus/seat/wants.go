package seat

import (
	"maps"
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A seater decides in one tick on the seats of BE work with a CPU limit.
type seater struct {
	facts.Layout
	snap   node.Snapshot
	bounds []plan.Want       // the wants of suppress, changed for workloads with seats
	at     map[node.Knob]int // the place of each knob in bounds
}

// Wants decides cpuset.cpus of BE workloads that have a CPU limit or are in a
// slice. It leaves out contention roots: CPU suppress decides their cpusets and
// quotas. On cgroup v1 suppress also decides the cpusets below them, and Wants
// narrows these. The argument bounds has the wants of suppress. Wants returns
// them together with its own. Seats are always among the CPUs that suppress
// allows, and never among the own CPUs of another workload.
func Wants(c Config, st State, nodeCPUs facts.NodeCPUs, l facts.Layout, u facts.Use, own hold.Grants, bounds []plan.Want, s node.Snapshot) (State, Grants, []plan.Want) {
	if !c.on() || nodeCPUs.CPUSetsManagedExternally {
		return State{}, nil, bounds
	}
	x := seater{Layout: l, snap: s, bounds: bounds, at: make(map[node.Knob]int, len(bounds)+len(s.Workloads))}
	for i, w := range bounds {
		x.at[w.Knob] = i
	}
	next, grants := st.Decide(Input{Config: c, May: x.allowedCPUs(nodeCPUs.Counted(s), own), Load: x.load(nodeCPUs.Counted(s), own, u), Map: own.Map, Snap: s})
	grants.find(s)
	x.bounds = slices.Grow(x.bounds, len(grants))
	for i := range s.Workloads {
		w := &s.Workloads[i]
		g, asked := grants[w.ID]
		switch {
		case x.RootOf[i] == "":
		case !asked:
			x.unseat(w, Grant{How: "it has no CPU limit, or no CPUs for seats"})
		case g.CPUs.Empty():
			x.unseat(w, g)
		default:
			for _, p := range g.at {
				x.set(node.Knob{Cgroup: p, File: node.FileCPUs}, g.CPUs, g.How)
			}
		}
		if asked && x.IsRoot(w.Cgroup) && g.needsNoQuota(s.Knobs) {
			x.unbound(w, g)
		}
	}
	return next, grants, x.bounds
}

// allowedCPUs returns the CPUs that each BE workload may use: the CPUs that
// suppress gives its contention root, minus the CPUs that other workloads own.
// A workload that contains another one, or shares its cgroup, is absent.
func (x *seater) allowedCPUs(all unit.CPUSet, own hold.Grants) map[node.WorkloadID]unit.CPUSet {
	var owned unit.CPUSet
	for _, a := range own.Allocations {
		if a.Policy == cpus.Exclusive {
			owned = owned.Union(a.CPUs)
		}
	}
	inside := make(map[node.CgroupPath]int, len(x.snap.Workloads))
	for i := range x.snap.Workloads {
		for p := x.snap.Workloads[i].Cgroup; p != ""; p = p.Parent() {
			inside[p]++
		}
	}
	may := make(map[node.WorkloadID]unit.CPUSet, len(x.snap.Workloads))
	for i := range x.snap.Workloads {
		w, root := &x.snap.Workloads[i], x.RootOf[i]
		if root == "" || inside[w.Cgroup] > 1 {
			continue
		}
		if _, shown := x.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}]; !shown {
			continue
		}
		set := hold.RoomBefore(x.snap.Knobs, w.Cgroup, all).Minus(owned)
		if j, bounded := x.at[node.Knob{Cgroup: root, File: node.FileCPUs}]; bounded {
			if v, _ := x.bounds[j].Outcome(x.snap.Knobs).(node.CPUs); !v.Set.Empty() {
				set = set.Intersect(v.Set)
			}
		}
		may[w.ID] = set
	}
	return may
}

// load returns the mean usage of each CPU by LS work. If a workload has no
// per-CPU counters, the CPUs of its seats or pool, or those to which it is
// bound, count as busy. If it has no such CPUs either, it is unknown where it
// runs, and load ignores it.
func (x *seater) load(all unit.CPUSet, own hold.Grants, u facts.Use) map[unit.CPU]unit.MilliCPU {
	var uncounted unit.CPUSet
	for i := range x.snap.Workloads {
		w := &x.snap.Workloads[i]
		if _, counted := u.PerCPU[w.ID]; counted || !w.Class.Sensitive() {
			continue
		}
		if h, shares := own.Shared(w.ID); shares {
			uncounted = uncounted.Union(h.CPUs)
		} else if set, bound := hold.BoundTo(x.snap.Knobs, w, all); bound {
			uncounted = uncounted.Union(set)
		}
	}
	if uncounted.Empty() {
		return u.Sensitive
	}
	load := maps.Clone(u.Sensitive)
	if load == nil {
		load = make(map[unit.CPU]unit.MilliCPU, uncounted.Len())
	}
	for c := range uncounted.All() {
		load[c] = max(load[c], leaveLoad)
	}
	return load
}

// set adds the want for a cpuset. It replaces the want of suppress for the same
// knob.
func (x *seater) set(k node.Knob, to unit.CPUSet, why string) {
	if i, bounded := x.at[k]; bounded {
		b := &x.bounds[i]
		if b.Intent == plan.Set && b.Reason != "" {
			why += "; " + b.Reason
		}
		b.Intent, b.Value, b.Reason = plan.Set, node.CPUs{Set: to}, why
		return
	}
	x.at[k] = len(x.bounds)
	x.bounds = append(x.bounds, plan.Want{Intent: plan.Set, Knob: k, Value: node.CPUs{Set: to}, Owner: plan.OwnerSeat, Reason: why, BE: true})
}

// unseat releases the cpuset of a workload that has no seats, unless the knob
// belongs to suppress.
func (x *seater) unseat(w *node.Workload, g Grant) {
	k := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
	_, touched := x.snap.Knobs.Before[k]
	if _, bounded := x.at[k]; !bounded && touched {
		x.at[k] = len(x.bounds)
		x.bounds = append(x.bounds, plan.Want{Intent: plan.Release, Knob: k, Owner: plan.OwnerSeat, Reason: g.How, BE: true})
	}
}

// find finds the cgroups in which the seats of each workload are set. On cgroup
// v2 this is the workload's own cgroup. On cgroup v1 a parent must always
// contain the CPUs of its children. There find takes the known cgroups of the
// workload that have no known cgroups below them. The cgroups above keep the
// CPUs that suppress gives.
func (all Grants) find(s node.Snapshot) {
	in := make(map[node.CgroupPath]node.WorkloadID, len(all))
	for i := range s.Workloads {
		w := &s.Workloads[i]
		g, asked := all[w.ID]
		switch {
		case !asked:
		case s.Knobs.Kernel.CgroupVersion == 1:
			in[w.Cgroup] = w.ID
		default:
			g.at = []node.CgroupPath{w.Cgroup}
			all[w.ID] = g
		}
	}
	if len(in) == 0 {
		return
	}
	above := map[node.CgroupPath]bool{} // cgroups that have a known cgroup below them
	for k := range s.Knobs.Now {
		if k.File != node.FileCPUs {
			continue
		}
		for p := k.Cgroup.Parent(); p != "" && !above[p]; p = p.Parent() {
			above[p] = true
		}
	}
	for k := range s.Knobs.Now {
		if k.File != node.FileCPUs || above[k.Cgroup] {
			continue
		}
		for p := k.Cgroup; p != ""; p = p.Parent() {
			if id, asked := in[p]; asked {
				g := all[id]
				g.at = append(g.at, k.Cgroup)
				all[id] = g
			}
		}
	}
	for _, id := range in {
		slices.Sort(all[id].at)
	}
}

// unbound removes the quota of a contention root if that quota is not below the
// limit of its workload.
func (x *seater) unbound(w *node.Workload, g Grant) {
	i, bounded := x.at[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}]
	if !bounded {
		return
	}
	b := &x.bounds[i]
	if v, _ := b.Value.(node.CPUMax); b.Intent != plan.Set || facts.IsQuota(v) && facts.MilliOf(v) >= g.Limit {
		*b = withoutQuota(x.snap.Knobs, *b)
	}
}

// needsNoQuota reports whether the workload already has its seats, and they
// limit it as much as its quota does. Tenon removes a quota only in this case,
// so that the work still has a limit if a write of seats fails.
func (g Grant) needsNoQuota(k node.Knobs) bool {
	for _, p := range g.at {
		now, _ := k.Now[node.Knob{Cgroup: p, File: node.FileCPUs}].(node.CPUs)
		if now.Set.Empty() || !g.CPUs.Contains(now.Set) {
			return false
		}
	}
	return g.Full && len(g.at) > 0
}

// withoutQuota returns w with no quota at all, not even the quota that the
// workload had before Tenon.
func withoutQuota(k node.Knobs, w plan.Want) plan.Want {
	w.Reason = "its seats limit it"
	w.Intent, w.Value = plan.Release, nil
	if v, _ := facts.Original(k, w.Knob).(node.CPUMax); facts.IsQuota(v) {
		w.Intent, w.Value = plan.Set, node.CPUMax{Quota: node.NoQuota, Period: v.Period, Burst: v.Burst}
	}
	return w
}

// Relieve removes the quotas of a workload and of its containers from the wants
// if its seats replace them. If a workload has several containers, its seats
// are the sum of theirs, and each container keeps its quota.
func (all Grants) Relieve(w *node.Workload, k node.Knobs, wants []plan.Want) {
	g, asked := all[w.ID]
	switch {
	case !asked:
	case g.needsNoQuota(k):
		for i := range wants {
			if i == 0 || len(w.Containers) == 1 {
				wants[i] = withoutQuota(k, wants[i])
			}
		}
	case g.CPUs.Empty() && wants[0].Intent == plan.Set:
		wants[0].Reason += "; " + g.How
	}
}
