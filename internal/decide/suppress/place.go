package suppress

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/lend"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// keepOff keeps BE work off forbidden CPUs while no budget chooses its CPUs. It
// returns the set of each contention root. If no CPU is forbidden, the map is
// nil, and the wants for the cpusets of BE have the intent i.
func (x *suppressor) keepOff(i plan.Intent, reason string) (map[node.CgroupPath]unit.CPUSet, []plan.Want) {
	if x.CPUSetsManagedExternally {
		return nil, x.anyCPU(plan.Release, "another component manages the cpusets here")
	}
	if len(x.avoid) == 0 && x.ReservedCPUs.Empty() && !facts.AnyOf(x.snap.Workloads, func(w *node.Workload) bool { return w.Class == node.LSE || w.Class == node.LSR }) {
		return nil, x.anyCPU(i, reason)
	}
	all := x.snap.Topology.All()
	p := hold.PlacesOf(x.NodeCPUs, x.use, x.snap, all, x.own.Held)
	if p.Free == all && len(x.avoid) == 0 {
		return nil, x.anyCPU(i, reason)
	}
	open := make(map[node.CgroupPath]bool, len(x.Roots))
	chosen := make(map[node.CgroupPath]unit.CPUSet, len(x.Roots))
	reasons := make(map[node.CgroupPath]string, len(x.Roots))
	for _, m := range x.Roots {
		room := facts.RoomOf(x.snap.Knobs, m, all)
		to, why := x.openOf(room, p)
		chosen[m], reasons[m], open[m] = to, why, to == room
		// An ancestor that was the root before may still have a set from Tenon. It loses
		// the set in this tick, so the root is open only if it is without that set, too.
		if before := hold.RoomBefore(x.snap.Knobs, m, all); open[m] && before != room {
			may, why := x.openOf(before, p)
			reasons[m], open[m] = why, may == before
		}
		now, _ := x.snap.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUs}].(node.CPUs)
		switch kept := now.Set.Intersect(to); {
		case to.Empty():
			chosen[m], reasons[m] = x.narrowSet(lend.Demand{}, room, p)
		case i == plan.Abstain && !kept.Empty():
			chosen[m], open[m] = kept, kept == now.Set
		}
	}
	wants := x.setsOf(chosen, reasons)
	for n, k := range x.chain {
		if open[k.root] {
			wants[n].Intent, wants[n].Value, wants[n].Reason = i, nil, reason
		}
	}
	return chosen, wants
}

// openOf returns those CPUs of a set that BE work may use, and words for a reason
// that say why it may not use the others.
func (x *suppressor) openOf(room unit.CPUSet, p hold.Places) (unit.CPUSet, string) {
	free := room.Intersect(p.Free)
	to := x.clear(free)
	return to, clauses(x.closed(room), x.exclusive(room.Minus(free)), keptOff(free, to))
}

// closed returns words for a reason: how many CPUs of a set are reserved. If none
// is, the result is "".
func (x *suppressor) closed(of unit.CPUSet) string {
	switch closed := of.Intersect(x.ReservedCPUs); {
	case closed.Empty():
		return ""
	case closed.Intersect(x.snap.Topology.Isolated).Empty():
		return facts.AreCPUs(closed.Len()) + " reserved"
	default:
		return facts.AreCPUs(closed.Len()) + " reserved or isolated"
	}
}

// exclusive is like closed, for the CPUs that work holds and does not lend.
func (x *suppressor) exclusive(of unit.CPUSet) string {
	if n := of.Minus(x.ReservedCPUs).Len(); n > 0 {
		return fmt.Sprintf("%s exclusive to LSE, or to LSR and not lent", facts.AreCPUs(n))
	}
	return ""
}
