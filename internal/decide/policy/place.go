package policy

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/hold"
	"tenon.sh/tenon/internal/decide/lend"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// places divides the CPUs by the work that may use them.
type places struct {
	free  unit.CPUSet // BE work may use these
	lsr   unit.CPUSet // CPUs of LSR work that are not lent to BE
	bound unit.CPUSet // LS work is bound to these
}

// placesOf finds the LS work that is bound to some of the CPUs. LSE and LSR
// work keeps its CPUs even when idle: those that Tenon gave it, and those to
// which it was bound before. LS work is ignored if per-CPU counters show where
// it runs.
func placesOf(c facts.Pool, u facts.Use, s node.Snapshot, cpus unit.CPUSet, own hold.Grants) places {
	var p places
	var lse unit.CPUSet
	for _, w := range s.Workloads {
		if !w.Class.Sensitive() {
			continue
		}
		set, bound := own.Of[w.ID]
		if set = set.Intersect(cpus); !bound {
			set, bound = hold.BoundTo(s, w, cpus)
		}
		if !bound {
			continue
		}
		switch w.Class {
		case node.LSE:
			lse = lse.Union(set)
		case node.LSR:
			p.lsr = p.lsr.Union(set)
		default:
			if _, counted := u.PerCPU[w.ID]; counted {
				continue
			}
		}
		p.bound = p.bound.Union(set)
	}
	p.free, p.lsr = cpus.Minus(lse).Minus(c.ReservedCPUs), p.lsr.Minus(lse).Minus(c.ReservedCPUs)
	if c.LendLSR {
		p.lsr = unit.CPUSet{}
	}
	p.free = p.free.Minus(p.lsr)
	return p
}

// roomOf returns the CPUs that a contention root may use: those in the present
// sets of its ancestors and in its own set from before Tenon.
func roomOf(k node.Knobs, m node.CgroupPath, cpus unit.CPUSet) unit.CPUSet {
	narrow := func(v node.Value) {
		if own, _ := v.(node.CPUs); !own.Set.Empty() {
			cpus = cpus.Intersect(own.Set)
		}
	}
	narrow(facts.Original(k, node.Knob{Cgroup: m, File: node.FileCPUs}))
	for p := m.Parent(); p != ""; p = p.Parent() {
		narrow(k.Now[node.Knob{Cgroup: p, File: node.FileCPUs}])
	}
	return cpus
}

// keepOff keeps BE work off forbidden CPUs while no budget chooses its CPUs. If
// no CPU is forbidden, its cpusets get the intent i. The first result is the
// set of each contention root; nil: no CPU is forbidden.
func (x suppressor) keepOff(i plan.Intent, reason string) (map[node.CgroupPath]unit.CPUSet, []plan.Want) {
	if x.CPUSetsManagedExternally {
		return nil, x.anyCPU(plan.Release, "another component manages the cpusets here")
	}
	if len(x.beside) == 0 && x.ReservedCPUs.Empty() && !slices.ContainsFunc(x.snap.Workloads, func(w node.Workload) bool { return w.Class == node.LSE || w.Class == node.LSR }) {
		return nil, x.anyCPU(i, reason)
	}
	all := x.snap.Topology.All()
	p := placesOf(x.Pool, x.use, x.snap, all, x.own)
	if p.free == all && len(x.beside) == 0 {
		return nil, x.anyCPU(i, reason)
	}
	free := make(map[node.CgroupPath]bool, len(x.Roots))
	chosen := make(map[node.CgroupPath]unit.CPUSet, len(x.Roots))
	reasons := make(map[node.CgroupPath]string, len(x.Roots))
	for _, m := range x.Roots {
		room := roomOf(x.snap.Knobs, m, all)
		to, why := room.Intersect(p.free), ""
		if closed := room.Intersect(x.ReservedCPUs); !closed.Empty() {
			why = "; " + facts.AreCPUs(closed.Len()) + " reserved"
			if !closed.Intersect(x.snap.Topology.Isolated).Empty() {
				why += " or isolated"
			}
		}
		if n := room.Minus(x.ReservedCPUs).Minus(to).Len(); n > 0 {
			why += fmt.Sprintf("; %s exclusive to LSE, or to LSR and not lent", facts.AreCPUs(n))
		}
		left := x.clear(to)
		why += keptOff(to, left)
		to = left
		chosen[m], reasons[m] = to, strings.TrimPrefix(why, "; ")
		free[m] = to == room
		now, _ := x.snap.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUs}].(node.CPUs)
		switch kept := now.Set.Intersect(to); {
		case to.Empty():
			chosen[m], reasons[m] = x.narrowSet(lend.Demand{}, room, p)
		case i == plan.Abstain && !kept.Empty():
			chosen[m], free[m] = kept, kept == now.Set
		}
	}
	wants := x.setsOf(chosen, reasons)
	for n, k := range x.chain {
		if free[k.root] {
			wants[n].Intent, wants[n].Value, wants[n].Reason = i, nil, reason
		}
	}
	return chosen, wants
}
