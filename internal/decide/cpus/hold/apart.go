package hold

import (
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// apartFrom lists the CPUs of the other workloads that should not share cores,
// or NUMA nodes, with w. It is empty if w may share them with all work.
func (r *round) apartFrom(w node.Workload) []pick.Hold {
	apart := w.Overrides.CPUs.Apart
	if pick.Separation(apart) == pick.Anywhere {
		return nil
	}
	var all []pick.Hold
	for i := range r.snap.Workloads {
		other := &r.snap.Workloads[i]
		if other.ID == w.ID || other.Overrides.CPUs.Apart != apart || !Demands(other) {
			continue
		}
		if set := r.usedBy(other); !set.Empty() {
			all = append(all, pick.Hold{CPUs: set, Apart: pick.Separation(apart)})
		}
	}
	return all
}

// usedBy returns the CPUs that a workload holds. Before its grant, these are
// the CPUs of the last tick, or else the CPUs that a scheduler chose.
func (r *round) usedBy(w *node.Workload) unit.CPUSet {
	o := w.Overrides.CPUs
	if pick.Grade(o.Grade) <= pick.Own {
		if set, granted := r.Of[w.ID]; granted || r.Why[w.ID] != "" {
			return set
		}
		if n, _ := Claimed(w); n > 0 {
			if set := previousCPUs(r.had.Own, r.snap, w, n); !set.Empty() {
				return set
			}
		}
		if pick.Grade(chosenGrade(o)) == pick.Own {
			return o.Chosen.CPUs
		}
		return unit.CPUSet{}
	}
	h, held := r.Shared[w.ID]
	if !held && r.Why[w.ID] == "" {
		if h, held = r.had.Shared[w.ID]; !held {
			h, _ = r.chosenHome(o)
		}
	}
	if h.Grade == pick.Pooled {
		return h.CPUs.Union(h.Home)
	}
	return h.CPUs
}
