package policy

import (
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// places says whose the CPUs are.
type places struct {
	free  unit.CPUSet // that best-effort work may have
	lsr   unit.CPUSet // of LSR work alone, not lent
	bound unit.CPUSet // to which latency-sensitive work is bound
}

// placesOf looks for work that is bound to some of the CPUs. Where LS work
// really runs is better known from its counters for each CPU, where there are
// any; LSE and LSR work keep their CPUs however idle they are.
func placesOf(c Suppress, u use, s node.Snapshot, cpus unit.CPUSet) places {
	var p places
	var lse unit.CPUSet
	for _, w := range s.Workloads {
		if !w.Class.Sensitive() {
			continue
		}
		set, bound := boundTo(s, w, cpus)
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
	p.free, p.lsr = cpus.Minus(lse), p.lsr.Minus(lse)
	if c.LendLSR {
		p.lsr = unit.CPUSet{}
	}
	p.free = p.free.Minus(p.lsr)
	return p
}

// boundTo returns the CPUs to which a workload is bound: the set of its cgroup,
// or of the nearest above that is its kind's alone. A set that holds all of
// cpus binds to nothing.
func boundTo(s node.Snapshot, w node.Workload, cpus unit.CPUSet) (unit.CPUSet, bool) {
	for p := w.Cgroup; ; p = p.Parent() {
		v, _ := s.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUs}].(node.CPUs)
		if !v.Set.Empty() {
			set := v.Set.Intersect(cpus)
			return set, !set.Empty() && set != cpus
		}
		if p == w.Meet || w.Meet == "" || !w.Meet.Contains(p) {
			return unit.CPUSet{}, false
		}
	}
}

// roomOf returns the CPUs of cpus that a meeting point may have at all: those
// of every cgroup above it, and those that it had before Tenon.
func roomOf(k node.Knobs, m node.CgroupPath, cpus unit.CPUSet) unit.CPUSet {
	narrow := func(v node.Value) {
		if own, _ := v.(node.CPUs); !own.Set.Empty() {
			cpus = cpus.Intersect(own.Set)
		}
	}
	narrow(original(k, node.Knob{Cgroup: m, File: node.FileCPUs}))
	for p := m.Parent(); p != ""; p = p.Parent() {
		narrow(k.Now[node.Knob{Cgroup: p, File: node.FileCPUs}])
	}
	return cpus
}
