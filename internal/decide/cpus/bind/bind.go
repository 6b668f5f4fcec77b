// Package bind binds LS workloads to their CPUs and to the memory of the NUMA nodes
// of these CPUs.
package bind

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// LS owns cpuset.cpus and cpuset.mems of LS workloads, and on cgroup v1 also of all
// cgroups below them. It binds workloads with exclusive CPUs to these CPUs and to the
// memory of their NUMA nodes. It binds all other LS workloads to the remaining CPUs. If
// no workload has exclusive CPUs, it binds none.
func LS(g hold.Grants, l facts.Layout, s node.Snapshot) []plan.Want {
	if g.Allocations == nil && !bindsNow(s.Knobs) {
		return nil
	}
	b := binder{Grants: g, Layout: l, snap: s, all: s.Topology.All(), promised: map[unit.CPU]unit.Bytes{}}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if set, own := g.Exclusive(w.ID); own {
			b.owners = append(b.owners, owner{w.Cgroup, set})
			b.taken = b.taken.Union(set)
		}
	}
	var wants []plan.Want
	for _, t := range b.trees() {
		w := &s.Workloads[t.work]
		cpus := seating{file: node.FileCPUs, intent: plan.Release, reason: "no workload has exclusive CPUs any more"}
		mems := seating{file: node.FileMems, intent: plan.Release, reason: "it has no exclusive CPUs"}
		if set, bound := g.Set(w.ID); bound {
			cpus.intent, cpus.to, cpus.reason, cpus.parts = plan.Set, set, g.Text(w.ID), g.Containers(*w)
			mems = b.memory(w, set)
		} else if !b.taken.Empty() {
			cpus = b.share(w)
		}
		if g.Refused(w.ID) {
			cpus.reason, cpus.say = g.Text(w.ID), true
		}
		wants = append(wants, b.want(t, cpus)...)
		wants = append(wants, b.want(t, mems)...)
	}
	return wants
}

// bindsNow reports whether Tenon has changed any cpuset.
func bindsNow(k node.Knobs) bool {
	for knob := range k.Before {
		if knob.File == node.FileCPUs || knob.File == node.FileMems {
			return true
		}
	}
	return false
}

// A binder holds the input of one decision.
type binder struct {
	hold.Grants
	facts.Layout
	snap   node.Snapshot
	all    unit.CPUSet
	owners []owner
	taken  unit.CPUSet // CPUs of all owners together
	// promised maps the number of each NUMA node to the memory that all workloads
	// bound to it need together.
	promised map[unit.CPU]unit.Bytes
}

// A workload becomes bound to a NUMA node only if all bound workloads together
// then need at most bindUpTo of the node's memory. A bound workload stays bound
// while they need at most stayUpTo.
const (
	bindUpTo unit.Percent = 75
	stayUpTo unit.Percent = 90
)

// An owner is a cgroup with exclusive CPUs.
type owner struct {
	cgroup node.CgroupPath
	cpus   unit.CPUSet
}

// A seating is the wanted value of one knob in all cgroups of a workload.
type seating struct {
	file   node.File
	intent plan.Intent
	to     unit.CPUSet
	reason string
	say    bool // give the reason even if nothing changes
	// parts has the sets of single containers. It is nil if all cgroups have one set.
	parts map[string]unit.CPUSet
}

// share returns the set of a workload that has no exclusive CPUs: the CPUs that
// it may use, minus the exclusive CPUs of other workloads. CPUs that belong to
// a cgroup below that of the workload stay in the set.
func (b *binder) share(w *node.Workload) seating {
	to := seating{file: node.FileCPUs, intent: plan.Release}
	room := hold.RoomBefore(b.snap.Knobs, w.Cgroup, b.all)
	if n, _ := hold.Claimed(w); n == 0 && w.Class != node.LS && room != b.all {
		return to // the workload was bound before Tenon, and has no claim
	}
	others := b.taken
	for _, o := range b.owners {
		if w.Cgroup.Contains(o.cgroup) {
			others = others.Minus(o.cpus)
		}
	}
	to.to = room.Minus(others)
	switch {
	case to.to.Empty():
		to.reason = "all CPUs that it may use are exclusive CPUs of others: it shares them"
	case to.to == room:
		to.reason = "no CPU that it may use is an exclusive CPU of others"
	default:
		to.intent, to.reason = plan.Set, fmt.Sprintf("%s exclusive to others", facts.AreCPUs(room.Intersect(others).Len()))
		// After a write of the cpuset, all threads can run on the whole set. So they
		// could run on isolated CPUs, too, which their affinity excluded before.
		if open := to.to.Minus(b.snap.Topology.Isolated); !open.Empty() {
			to.to = open
		}
	}
	return to
}

// memory binds a workload to the memory of the NUMA nodes of its CPUs. It
// leaves a workload unbound if its memory does not fit beside that of the
// workloads already bound, or if its memory usage is unknown: the workload
// could then run out of memory while other nodes have plenty. Callers must call
// memory for the workloads in the same order in each tick.
func (b *binder) memory(w *node.Workload, cpus unit.CPUSet) seating {
	m := seating{file: node.FileMems, intent: plan.Release}
	var all unit.CPUSet // NUMA nodes
	for _, c := range b.snap.Topology.CPUs {
		if c.NUMA < 0 || c.NUMA >= unit.MaxCPUs {
			m.reason = "the NUMA nodes are unknown"
			return m
		}
		all.Add(unit.CPU(c.NUMA))
		if cpus.Has(c.ID) {
			m.to.Add(unit.CPU(c.NUMA))
		}
	}
	nodes := m.to
	for p := w.Cgroup; p != ""; p = p.Parent() {
		if own, _ := facts.Original(b.snap.Knobs, node.Knob{Cgroup: p, File: node.FileMems}).(node.CPUs); !own.Set.Empty() {
			all, m.to = all.Intersect(own.Set), m.to.Intersect(own.Set)
		}
	}
	if m.to.Empty() {
		m.say, m.reason = true, fmt.Sprintf("%s may not use the memory of the NUMA nodes of its CPUs (%v): its cgroup excludes them", w.ID, nodes)
		return m
	}
	if m.to == all {
		m.reason = "its CPUs are on every NUMA node that it may use"
		return m
	}
	used, measured := facts.MemoryOf(*w).Value()
	upTo := bindUpTo
	if _, bound := b.snap.Knobs.Before[node.Knob{Cgroup: w.Cgroup, File: node.FileMems}]; bound {
		upTo = stayUpTo
	}
	need := max(w.MemoryRequest.Or(0), used)
	each := need / unit.Bytes(m.to.Len())
	for n := range m.to.All() {
		size, known := facts.NUMAMemory(b.snap.Topology, node.NUMANode(n)).Value()
		if !known || !measured {
			m.say, m.reason = true, fmt.Sprintf("the memory use of %s or the size of its NUMA nodes is unknown: it may use all NUMA nodes", w.ID)
			return m
		}
		if left := size.Percent(upTo) - b.promised[n]; each > left {
			m.say, m.reason = true, fmt.Sprintf("%s needs %s of memory, and NUMA node %v has about %s left", w.ID, facts.MiB(need), n, facts.MiB(max(left, 0)))
			return m
		}
	}
	for n := range m.to.All() {
		b.promised[n] += each
	}
	m.intent, m.reason = plan.Set, "the memory of the NUMA nodes of its CPUs"
	return m
}

// A tree lists the cgroups that are bound together: the workload's own cgroup
// and, on cgroup v1, all known cgroups below it. On cgroup v1 a cpuset must lie
// within the cpuset of the parent.
type tree struct {
	work   int // index of the workload
	groups []node.CgroupPath
}

// trees lists the LS workloads with their cgroups, parents first. The cgroups
// of BE work below them are left out.
func (b *binder) trees() []tree {
	at := map[node.CgroupPath]int{}
	trees := make([]tree, 0, len(b.snap.Workloads))
	for i := range b.snap.Workloads {
		w := &b.snap.Workloads[i]
		if _, twice := at[w.Cgroup]; w.Class.Sensitive() && !twice && w.Cgroup != "" {
			at[w.Cgroup] = len(trees)
			trees = append(trees, tree{work: i, groups: []node.CgroupPath{w.Cgroup}})
			if parts := b.Containers(*w); parts != nil && b.snap.Knobs.Kernel.CgroupVersion != 1 {
				for _, c := range w.Containers {
					trees[len(trees)-1].groups = append(trees[len(trees)-1].groups, c.Cgroup)
				}
			}
		}
	}
	if b.snap.Knobs.Kernel.CgroupVersion != 1 {
		return trees
	}
	for k := range b.snap.Knobs.Now {
		if _, is := at[k.Cgroup]; is || k.File != node.FileCPUs {
			continue
		}
		if _, inBE := b.RootAbove(k.Cgroup); inBE {
			continue
		}
		for p := k.Cgroup.Parent(); p != ""; p = p.Parent() {
			if i, is := at[p]; is {
				trees[i].groups = append(trees[i].groups, k.Cgroup)
				break
			}
		}
	}
	for _, t := range trees {
		slices.SortFunc(t.groups, func(a, b node.CgroupPath) int { return strings.Compare(string(a), string(b)) })
	}
	return trees
}

// want converts a seating into requested values (wants) of all cgroups of a tree. On v1 a
// parent must always contain its children. If neither the present nor the wanted set contains
// the other, all cpusets of the tree hold the union of both for one tick.
func (b *binder) want(t tree, to seating) []plan.Want {
	knobs := b.snap.Knobs
	next := make(map[node.CgroupPath]unit.CPUSet, len(t.groups))
	exchange := false
	var wants []plan.Want
	for _, p := range t.groups {
		knob := node.Knob{Cgroup: p, File: to.file}
		w := plan.Want{Intent: to.intent, Knob: knob, Owner: plan.OwnerPin, Reason: to.reason}
		now, shown := knobs.Now[knob].(node.CPUs)
		_, touched := knobs.Before[knob]
		said := to.say && p == t.groups[0]
		if !shown {
			w.Intent = plan.Release
		}
		if w.Intent == plan.Release && !touched && !said {
			continue
		}
		if w.Intent == plan.Set {
			set := b.partOf(t, to, p)
			if own, _ := facts.Original(knobs, knob).(node.CPUs); !set.Intersect(own.Set).Empty() {
				set = set.Intersect(own.Set)
			}
			if up, above := next[p.Parent()]; above && !set.Intersect(up).Empty() {
				set = set.Intersect(up)
			} else if above {
				set = up
			}
			set = set.Union(b.lodgers(knob))
			next[p] = set
			exchange = exchange || !set.Contains(now.Set) && !now.Set.Contains(set)
			w.Value = node.CPUs{Set: set}
		}
		wants = append(wants, w)
	}
	if exchange && knobs.Kernel.CgroupVersion == 1 {
		for i := range wants {
			if wants[i].Intent != plan.Set {
				continue
			}
			now := knobs.Now[wants[i].Knob].(node.CPUs)
			wants[i].Value = node.CPUs{Set: now.Set.Union(wants[i].Value.(node.CPUs).Set)}
		}
	}
	return wants
}

// partOf returns the wanted set of one cgroup of a workload. If the cgroup is
// in a container with its own set, partOf returns that set, and otherwise the
// set of the workload.
func (b *binder) partOf(t tree, to seating, p node.CgroupPath) unit.CPUSet {
	for _, c := range b.snap.Workloads[t.work].Containers {
		if part, own := to.parts[c.Name]; own && (c.Cgroup == p || c.Cgroup.Contains(p)) {
			return part
		}
	}
	return to.to
}

// lodgers returns the CPUs or NUMA nodes of BE work below a cgroup. On cgroup
// v1 the cgroup must contain them.
func (b *binder) lodgers(k node.Knob) unit.CPUSet {
	var set unit.CPUSet
	if b.snap.Knobs.Kernel.CgroupVersion != 1 {
		return set
	}
	for _, m := range b.Roots {
		if k.Cgroup.Contains(m) {
			now, _ := b.snap.Knobs.Now[node.Knob{Cgroup: m, File: k.File}].(node.CPUs)
			set = set.Union(now.Set)
		}
	}
	return set
}
