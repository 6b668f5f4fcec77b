package suppress

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/lend"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// giveCPUs gives all contention roots the same set of whole CPUs, according to the
// budget. spent is the growth of the set. A set has at least one CPU, and at least
// the minimum of BE. If the set is larger than the budget, BE also gets a quota of
// the budget, so that its minimum is the same as with a quota alone.
func (x *suppressor) giveCPUs() (spent unit.MilliCPU, wants []plan.Want) {
	p := hold.PlacesOf(x.NodeCPUs, x.use, x.snap, x.cpus, x.own.Held)
	rooms := make(map[node.CgroupPath]unit.CPUSet, len(x.Roots))
	var room unit.CPUSet
	for _, m := range x.Roots {
		rooms[m] = facts.RoomOf(x.snap.Knobs, m, x.cpus)
		room = room.Union(rooms[m])
	}
	d := lend.Demand{
		Allowed: x.clear(room.Intersect(p.Free)), Load: x.use.Sensitive, Bound: p.Bound, Have: x.currentCPUs(),
		Swaps: max(int(x.Capacity.Percent(Growth)/unit.CPUs(1)), 2),
	}
	has := d.Have.Intersect(d.Allowed).Len()
	d.CPUs = x.wholeCPUs(has)
	if x.snap.SLOViolated && !d.Have.Empty() {
		d.CPUs = min(d.CPUs, d.Have.Len())
	}
	if max(has, d.CPUs) > 1 && x.snap.Knobs.Kernel.CgroupVersion == 1 {
		d.Swaps = min(d.Swaps, min(has, d.CPUs)-1) // nextCPUSet needs one common CPU
	}
	all := lend.BestEffort(x.snap.Topology, d)
	which := clauses(x.explain(d, all), keptOff(room.Intersect(p.Free), d.Allowed))
	if has > 0 {
		spent = unit.CPUs(max(all.CPUs.Len()-has, 0))
	}

	chosen := make(map[node.CgroupPath]unit.CPUSet, len(x.Roots))
	reasons := make(map[node.CgroupPath]string, len(x.Roots))
	for _, m := range x.Roots {
		chosen[m], reasons[m] = all.CPUs.Intersect(rooms[m]), which
		if chosen[m].Empty() {
			chosen[m], reasons[m] = x.narrowSet(d, rooms[m], p)
		}
	}
	more, wants := x.quotaBeside(chosen)
	return spent + more, append(wants, x.setsOf(chosen, reasons)...)
}

// wholeCPUs returns the number of whole CPUs that the budget gives. It exceeds
// the present number by at most the saved growth. It stays the same if the
// budget is lower by at most Deadband.
func (x *suppressor) wholeCPUs(present int) int {
	n := int(x.May / unit.CPUs(1))
	switch {
	case present > 0 && n > present:
		n = min(n, present+int(x.gain/unit.CPUs(1)))
	case n < present && x.May > x.Least && x.May+x.Capacity.Percent(Deadband) >= unit.CPUs(present):
		n = present
	}
	return max(n, x.minimumCPUs())
}

// minimumCPUs returns the number of CPUs that BE always keeps, at least one.
func (x *suppressor) minimumCPUs() int { return max(int((x.Least+unit.CPUs(1)-1)/unit.CPUs(1)), 1) }

// currentCPUs returns the CPUs that BE work has from Tenon. If the
// contention roots have different sets, it returns the largest one. Where seats
// have narrowed the sets, it returns the CPUs from which the seats were chosen.
func (x *suppressor) currentCPUs() unit.CPUSet {
	var most unit.CPUSet
	for _, m := range x.Roots {
		knob := node.Knob{Cgroup: m, File: node.FileCPUs}
		now, _ := x.snap.Knobs.Now[knob].(node.CPUs)
		if _, touched := x.snap.Knobs.Before[knob]; touched && now.Set.Len() > most.Len() {
			most = now.Set
		}
	}
	if !most.Empty() && x.seated.Len() > most.Len() {
		return x.seated
	}
	return most
}

// explain returns the part of a reason that describes the chosen CPUs.
func (x *suppressor) explain(d lend.Demand, c lend.Choice) string {
	text := fmt.Sprintf("%s: %s", x.Reason, facts.CountCPUs(c.CPUs.Len()))
	switch {
	case len(d.Load) == 0 && d.Bound.Empty():
		text += " by topology"
	case c.Beside == 0:
		text += ", none beside LS"
	default:
		text += fmt.Sprintf(", %d beside LS", c.Beside)
	}
	if c.CPUs.Len() == d.CPUs && d.CPUs < int(x.May/unit.CPUs(1)) {
		text += x.holdReason()
	}
	return text
}

// narrowSet returns a minimum set for a contention root that may use none of the
// chosen CPUs. It takes free CPUs that the root may use, or else CPUs of LSR work.
// It never takes CPUs of LSE work or reserved CPUs, so the set may be empty.
func (x *suppressor) narrowSet(d lend.Demand, room unit.CPUSet, p hold.Places) (unit.CPUSet, string) {
	d.CPUs = x.minimumCPUs()
	for _, from := range []struct {
		cpus   unit.CPUSet
		reason string
	}{
		{room.Intersect(p.Free), "none of the CPUs chosen for BE is allowed here"},
		{room.Intersect(p.LSR), x.nameOwners() + ", or LSR's and not lent"},
	} {
		if !from.cpus.Empty() {
			d.Allowed = from.cpus
			return lend.BestEffort(x.snap.Topology, d).CPUs, from.reason + ": BE keeps its least"
		}
	}
	switch {
	case !x.Enable:
		return unit.CPUSet{}, x.nameOwners() + ", and CPU suppress is off: BE has no limit"
	case x.use.Elapsed <= 0:
		return unit.CPUSet{}, x.nameOwners() + ": " + noRate
	}
	return unit.CPUSet{}, x.nameOwners() + ": BE keeps its least by quota"
}

// nameOwners names the owners of the CPUs that BE work may not use.
func (x *suppressor) nameOwners() string {
	if x.ReservedCPUs.Empty() {
		return "every CPU here is LSE's"
	}
	return "every CPU here is reserved or LSE's"
}

// quotaBeside adds a quota if the cpusets alone cannot enforce the bound.
func (x *suppressor) quotaBeside(chosen map[node.CgroupPath]unit.CPUSet) (spent unit.MilliCPU, wants []plan.Want) {
	edge, bounded := unit.CPUs(x.minimumCPUs()), false
	for _, m := range x.Roots {
		if _, touched := x.snap.Knobs.Before[node.Knob{Cgroup: m, File: node.FileCPUMax}]; touched {
			edge, bounded = unit.CPUs(x.minimumCPUs())+x.Capacity.Percent(Deadband), true
		}
	}
	if x.May < edge || bounded && x.snap.SLOViolated {
		spent, wants = x.giveQuota()
	} else {
		wants = x.removeBound("CPU suppress works by cpuset here")
	}
	x.corner(wants, chosen)
	return spent, wants
}

// corner changes the wants for the quotas of contention roots that could use
// only CPUs of LSE work or reserved CPUs. The quota of such a root becomes the
// minimum of BE.
func (x *suppressor) corner(wants []plan.Want, chosen map[node.CgroupPath]unit.CPUSet) {
	for i, m := range x.Roots {
		if set, asked := chosen[m]; asked && set.Empty() {
			least := x.Least / unit.MilliCPU(len(x.Roots))
			if t := x.tops[m]; t.limited {
				least = min(least, t.most)
			}
			wants[i].Intent, wants[i].Value = plan.Set, node.Limit(least)
			wants[i].Reason = x.nameOwners() + ": BE keeps its least"
		}
	}
}

// A link is a cgroup and the contention root whose cpuset it gets.
type link struct{ cgroup, root node.CgroupPath }

// chainOf lists the contention roots. On cgroup v1 the list also has all known cgroups below
// them, parents first: the kernel refuses a child's cpuset that is not within its parent's, so
// all of them change together. On v2 a child inherits the set of its parent.
func chainOf(l facts.Layout, s node.Snapshot) []link {
	var chain []link
	if s.Knobs.Kernel.CgroupVersion != 1 {
		for _, m := range l.Roots {
			chain = append(chain, link{m, m})
		}
		return chain
	}
	for k := range s.Knobs.Now {
		if k.File != node.FileCPUs {
			continue
		}
		if m, is := l.RootAbove(k.Cgroup); is {
			chain = append(chain, link{k.Cgroup, m})
		}
	}
	slices.SortFunc(chain, func(a, b link) int { return strings.Compare(string(a.cgroup), string(b.cgroup)) })
	return chain
}

// setsOf returns the wants that give each cgroup of the chain the set of its
// contention root.
func (x *suppressor) setsOf(chosen map[node.CgroupPath]unit.CPUSet, reasons map[node.CgroupPath]string) []plan.Want {
	next := make(map[node.CgroupPath]*node.CPUs, len(x.chain))
	wants := make([]plan.Want, 0, len(x.chain))
	var last *node.CPUs // most cgroups get the same set, so they share it and its value
	var value node.Value
	for _, k := range x.chain {
		w := x.cpusWant(k.cgroup)
		w.Intent, w.Reason = plan.Abstain, reasons[k.root]
		if to := chosen[k.root]; !to.Empty() {
			up, above := next[k.cgroup.Parent()]
			if above {
				to = to.Intersect(up.Set)
			}
			set := x.nextCPUSet(k.cgroup, to)
			if above && !up.Set.Contains(set) { // the workload leaves its seats
				if x.hasBelow(k.cgroup) {
					x.widenAbove(k.cgroup, set, next, wants)
				} else {
					set = to
				}
			}
			if last == nil || last.Set != set {
				last, value = &node.CPUs{Set: set}, node.CPUs{Set: set}
			}
			next[k.cgroup], w.Intent, w.Value = last, plan.Set, value
		}
		wants = append(wants, w)
	}
	return wants
}

// hasBelow reports whether the chain has a cgroup directly below p.
func (x *suppressor) hasBelow(p node.CgroupPath) bool {
	return slices.ContainsFunc(x.chain, func(k link) bool { return k.cgroup.Parent() == p })
}

// widenAbove lets the cgroups above p contain a set for this tick. A cgroup below
// p has no CPU of its next set yet, and can only get one when p has both.
func (x *suppressor) widenAbove(p node.CgroupPath, set unit.CPUSet, next map[node.CgroupPath]*node.CPUs, wants []plan.Want) {
	for i, k := range x.chain[:len(wants)] {
		if up := next[k.cgroup]; up != nil && k.cgroup != p && k.cgroup.Contains(p) {
			both := node.CPUs{Set: up.Set.Union(set)}
			next[k.cgroup], wants[i].Value = &both, both
		}
	}
}

// nextCPUSet returns the next cpuset of a cgroup on the way to the wanted one.
// On cgroup v1 a parent must always contain its children. If neither the
// present nor the wanted set contains the other, the change takes two ticks:
// through the intersection of the two sets, or through their union if the
// intersection is empty.
func (x *suppressor) nextCPUSet(p node.CgroupPath, to unit.CPUSet) unit.CPUSet {
	now, _ := x.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUs}].(node.CPUs)
	if x.snap.Knobs.Kernel.CgroupVersion != 1 || now.Set.Contains(to) || to.Contains(now.Set) {
		return to
	}
	if common := now.Set.Intersect(to); !common.Empty() {
		return common
	}
	return now.Set.Union(to)
}
