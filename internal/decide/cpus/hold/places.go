package hold

import (
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Places says which CPUs BE work may use, and to which LS work is bound.
type Places struct {
	Free  unit.CPUSet // BE work may use these
	LSR   unit.CPUSet // CPUs of LSR work that are not lent to BE
	Bound unit.CPUSet // LS work is bound to these
}

// PlacesOf finds the CPUs to which LS work is bound. LSE and LSR work keeps its
// CPUs even while it is idle: both its own CPUs and those to which it was bound
// before. PlacesOf ignores work of class LS if its per-CPU counters show where
// it runs.
func PlacesOf(c facts.NodeCPUs, u facts.Use, s node.Snapshot, cpus unit.CPUSet, held Held) Places {
	var p Places
	var lse unit.CPUSet
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if !w.Class.Sensitive() {
			continue
		}
		set, bound := held.Exclusive(w.ID)
		if set = set.Intersect(cpus); !bound {
			set, bound = BoundTo(s.Knobs, w, cpus)
		}
		if !bound {
			continue
		}
		switch w.Class {
		case node.LSE:
			lse = lse.Union(set)
		case node.LSR:
			p.LSR = p.LSR.Union(set)
		default:
			if _, counted := u.PerCPU[w.ID]; counted {
				continue
			}
		}
		p.Bound = p.Bound.Union(set)
	}
	p.Free, p.LSR = cpus.Minus(lse).Minus(c.ReservedCPUs), p.LSR.Minus(lse).Minus(c.ReservedCPUs)
	if c.LendLSR {
		p.LSR = unit.CPUSet{}
	}
	p.Free = p.Free.Minus(p.LSR)
	return p
}
