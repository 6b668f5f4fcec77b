package hold

import "tenon.sh/tenon/internal/model/unit"

// divide grants the claims in their order, in two passes. The first pass grants
// claims that demand no more than the workload has, and keeps what the other
// workloads have. The second pass grants the other claims. So a workload that
// grows, or that is new, takes no CPU that another one keeps.
func (r *round) divide(claims []claim) {
	var later []claim
	var kept []unit.CPUSet // by index of later
	for _, c := range claims {
		had := c.had.Intersect(r.openTo(c))
		n, most := had.Len(), r.free.Len()-r.least
		switch {
		case n > 0 && c.cpus <= min(n, most):
			r.grant(c)
			continue
		case n > most: // too few CPUs are left to keep them
			had = unit.CPUSet{}
		}
		r.free = r.free.Minus(had)
		later, kept = append(later, c), append(kept, had)
	}
	for i, c := range later {
		r.free = r.free.Union(kept[i])
		r.grant(c)
	}
}

// openTo returns the free CPUs that the workload of a claim may use.
func (r *round) openTo(c claim) unit.CPUSet {
	return r.free.Intersect(RoomBefore(r.snap.Knobs, c.work.Cgroup, r.snap.Topology.All()))
}
