package hold

import (
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// apartFrom lists the CPUs of the other workloads that should not share cores,
// or NUMA nodes, with w. It is empty if w may share them with all work.
func (r *round) apartFrom(w node.Workload) []cpus.Allocation {
	apart := w.Overrides.CPUs.Exclusive
	if apart == cpus.NotExclusive {
		return nil
	}
	var all []cpus.Allocation
	for i := range r.snap.Workloads {
		other := &r.snap.Workloads[i]
		if other.ID == w.ID || other.Overrides.CPUs.Exclusive != apart || !Demands(other) {
			continue
		}
		if set := r.usedBy(other); !set.Empty() {
			all = append(all, cpus.Allocation{CPUs: set, Exclusive: apart})
		}
	}
	return all
}

// usedBy returns the CPUs that a workload holds. Before its grant, these are
// the CPUs of the last tick, or else the CPUs that a scheduler chose.
func (r *round) usedBy(w *node.Workload) unit.CPUSet {
	o := w.Overrides.CPUs
	if o.Policy <= cpus.Exclusive {
		if set, granted := r.Exclusive(w.ID); granted || r.Refused(w.ID) {
			return set
		}
		if n, _ := Claimed(w); n > 0 {
			if set := previousCPUs(r.had, r.snap, w, n); !set.Empty() {
				return set
			}
		}
		if chosenPolicy(o) == cpus.Exclusive {
			return o.Chosen.CPUs
		}
		return unit.CPUSet{}
	}
	h, held := r.Shared(w.ID)
	if !held && !r.Refused(w.ID) {
		if h, held = r.had.Shared(w.ID); !held {
			h, _ = r.chosenHome(o)
		}
	}
	if h.Policy == cpus.Pool {
		return h.CPUs.Union(h.Domain)
	}
	return h.CPUs
}
