package policy

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// giveCPUs gives the whole CPUs of the budget to all contention roots alike,
// and returns by how much their set has grown. A set holds at least one CPU and
// at least the minimum; if that is more than the budget, a quota bounds it
// further. Both policies so have the same minimum.
func (x suppressor) giveCPUs() (spent unit.MilliCPU, wants []plan.Want) {
	p := placesOf(x.Pool, x.use, x.snap, x.cpus, x.own)
	rooms := make(map[node.CgroupPath]unit.CPUSet, len(x.Roots))
	var room unit.CPUSet
	for _, m := range x.Roots {
		rooms[m] = roomOf(x.snap.Knobs, m, x.cpus)
		room = room.Union(rooms[m])
	}
	d := pick.Demand{
		Allowed: x.clear(room.Intersect(p.free)), Load: x.use.Sensitive, Bound: p.bound, Have: x.have(),
		Swaps: max(int(x.capacity.Percent(growth)/unit.CPUs(1)), 2),
	}
	has := d.Have.Intersect(d.Allowed).Len()
	d.CPUs = x.wholeCPUs(has)
	if x.snap.SLOViolated && !d.Have.Empty() {
		d.CPUs = min(d.CPUs, d.Have.Len())
	}
	if max(has, d.CPUs) > 1 && x.snap.Knobs.Kernel.CgroupVersion == 1 {
		d.Swaps = min(d.Swaps, min(has, d.CPUs)-1) // one CPU stays in the set: see toward
	}
	all := pick.BestEffort(x.snap.Topology, d)
	which := x.explain(d, all) + keptOff(room.Intersect(p.free), d.Allowed)
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

// wholeCPUs returns the number of CPUs of the budget, given the present number.
// It grows no further than the saved gain, and stays if the budget is lower by
// no more than the deadband.
func (x suppressor) wholeCPUs(has int) int {
	n := int(x.may / unit.CPUs(1))
	switch {
	case has > 0 && n > has:
		n = min(n, has+int(x.gain/unit.CPUs(1)))
	case n < has && x.may > x.least && x.may+x.capacity.Percent(deadband) >= unit.CPUs(has):
		n = has
	}
	return max(n, x.fewest())
}

// fewest is the number of CPUs that hold the least.
func (x suppressor) fewest() int { return max(int((x.least+unit.CPUs(1)-1)/unit.CPUs(1)), 1) }

// have returns the CPUs that Tenon has given to best-effort work: the largest
// set if they differ.
func (x suppressor) have() unit.CPUSet {
	var most unit.CPUSet
	for _, m := range x.Roots {
		knob := node.Knob{Cgroup: m, File: node.FileCPUs}
		now, _ := x.snap.Knobs.Now[knob].(node.CPUs)
		if _, touched := x.snap.Knobs.Before[knob]; touched && now.Set.Len() > most.Len() {
			most = now.Set
		}
	}
	return most
}

// explain names the chosen CPUs.
func (x suppressor) explain(d pick.Demand, c pick.Choice) string {
	text := fmt.Sprintf("%s: %s", x.reason, facts.CountCPUs(c.CPUs.Len()))
	switch {
	case len(d.Load) == 0 && d.Bound.Empty():
		text += " by topology"
	case c.Beside == 0:
		text += ", none beside LS"
	default:
		text += fmt.Sprintf(", %d beside LS", c.Beside)
	}
	if c.CPUs.Len() == d.CPUs && d.CPUs < int(x.may/unit.CPUs(1)) {
		text += x.held()
	}
	return text
}

// narrowSet finds the minimum for a contention root that can use none of the
// chosen CPUs: free CPUs that it may use, or else LSR's. It never takes LSE's
// or reserved CPUs; the set may be empty.
func (x suppressor) narrowSet(d pick.Demand, room unit.CPUSet, p places) (unit.CPUSet, string) {
	d.CPUs = x.fewest()
	for _, from := range []struct {
		cpus   unit.CPUSet
		reason string
	}{
		{room.Intersect(p.free), "none of the CPUs that all BE has is allowed here"},
		{room.Intersect(p.lsr), x.taken() + ", or LSR's and not lent"},
	} {
		if !from.cpus.Empty() {
			d.Allowed = from.cpus
			return pick.BestEffort(x.snap.Topology, d).CPUs, from.reason + ": BE keeps its least"
		}
	}
	switch {
	case !x.Enable:
		return unit.CPUSet{}, x.taken() + ", and CPU suppress is off: nothing bounds BE"
	case x.use.Elapsed <= 0:
		return unit.CPUSet{}, x.taken() + ": " + noRate
	}
	return unit.CPUSet{}, x.taken() + ": BE keeps its least by quota"
}

// taken names the owners of the CPUs that best-effort work may not use.
func (x suppressor) taken() string {
	if x.ReservedCPUs.Empty() {
		return "every CPU here is LSE's"
	}
	return "every CPU here is reserved or LSE's"
}

// quotaBeside adds a quota where no cpuset can hold the bound.
func (x suppressor) quotaBeside(chosen map[node.CgroupPath]unit.CPUSet) (spent unit.MilliCPU, wants []plan.Want) {
	edge, bounded := unit.CPUs(x.fewest()), false
	for _, m := range x.Roots {
		if _, touched := x.snap.Knobs.Before[node.Knob{Cgroup: m, File: node.FileCPUMax}]; touched {
			edge, bounded = unit.CPUs(x.fewest())+x.capacity.Percent(deadband), true
		}
	}
	if x.may < edge || bounded && x.snap.SLOViolated {
		spent, wants = x.giveQuota()
	} else {
		wants = x.unbounded("CPU suppress works by cpuset here")
	}
	x.corner(wants, chosen)
	return spent, wants
}

// corner bounds best-effort work by quota to its minimum if only LSE's or
// reserved CPUs are left for it. It changes the quota wants of the contention
// roots.
func (x suppressor) corner(wants []plan.Want, chosen map[node.CgroupPath]unit.CPUSet) {
	for i, m := range x.Roots {
		if set, asked := chosen[m]; asked && set.Empty() {
			least := x.least / unit.MilliCPU(len(x.Roots))
			if t := x.tops[m]; t.limited {
				least = min(least, t.most)
			}
			wants[i].Intent, wants[i].Value = plan.Set, node.Limit(least)
			wants[i].Reason = x.taken() + ": BE keeps its least"
		}
	}
}

// A link is a cgroup whose cpuset follows that of a contention root.
type link struct{ cgroup, root node.CgroupPath }

// chainOf lists the contention roots and, on cgroup v1, every known cgroup
// below them, parents first: there the kernel refuses a child's cpuset outside
// its parent's, so all of them change together. On v2 a child inherits from its
// parent.
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

// setsOf returns wants that give each cgroup of the chain the set of its
// contention root.
func (x suppressor) setsOf(chosen map[node.CgroupPath]unit.CPUSet, reasons map[node.CgroupPath]string) []plan.Want {
	next := make(map[node.CgroupPath]unit.CPUSet, len(x.chain))
	wants := make([]plan.Want, 0, len(x.chain))
	for _, k := range x.chain {
		w := x.cpusWant(k.cgroup)
		w.Intent, w.Reason = plan.Abstain, reasons[k.root]
		if to := chosen[k.root]; !to.Empty() {
			if up, above := next[k.cgroup.Parent()]; above {
				to = to.Intersect(up)
			}
			next[k.cgroup] = x.toward(k.cgroup, to)
			w.Intent, w.Value = plan.Set, node.CPUs{Set: next[k.cgroup]}
		}
		wants = append(wants, w)
	}
	return wants
}

// toward returns the next set of a cgroup on its way to a set. On cgroup v1 a
// parent must contain its children at every moment. Two sets of which neither
// contains the other are therefore exchanged in two ticks: through their
// intersection, or their union if that is empty.
func (x suppressor) toward(p node.CgroupPath, to unit.CPUSet) unit.CPUSet {
	now, _ := x.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUs}].(node.CPUs)
	if x.snap.Knobs.Kernel.CgroupVersion != 1 || now.Set.Contains(to) || to.Contains(now.Set) {
		return to
	}
	if common := now.Set.Intersect(to); !common.Empty() {
		return common
	}
	return now.Set.Union(to)
}
