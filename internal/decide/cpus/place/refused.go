package place

import (
	"tenon.sh/tenon/internal/model/cpus"
)

// refusedIn returns the pods that a report lists as refused. It leaves out pods
// that hold CPUs (facts). The result is nil if there are none, as on most nodes.
func refusedIn(r Report, facts map[UID]*cpus.Allocation) map[UID]bool {
	var all map[UID]bool
	for _, uid := range r.Refused {
		if _, has := facts[uid]; has {
			continue
		}
		if all == nil {
			all = make(map[UID]bool, len(r.Refused))
		}
		all[uid] = true
	}
	return all
}

// refuses reports whether a pod holds nothing because the node gave it no CPUs.
// An agent lists only bound pods, and a pod is bound once. So the report is
// younger than the binding, even if the ledger learns it first. A pod that the
// ledger does not know as bound keeps its reservation.
func (p *place) refuses(e *entry) bool { return e.state == bound && p.refused[e.pod.UID] }
