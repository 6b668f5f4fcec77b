package place

import (
	"tenon.sh/tenon/internal/decide/cpus/shortage"
	"tenon.sh/tenon/internal/model/cpus"
)

// Explain returns the reason why the request does not fit on the node, with the
// numbers of the node and the names of the pods that need its CPUs. The code is
// Fits if the request fits. name returns the name of a pod.
//
// Explain is for a reader who looks at one node. A scheduler uses the code that
// Room returns: its message says how many nodes have the same reason, so the
// reason must not contain numbers that differ between nodes.
func (v *View) Explain(r *cpus.PodRequest, name func(UID) string) cpus.Reason {
	if v.out != cpus.Fits {
		why := cpus.Reason{Code: v.out}
		if v.out == cpus.OtherManager && v.manager != "" {
			why.Others = []string{v.manager}
		}
		return why
	}
	n := shortage.Node{Map: v.m, Seats: v.seats}
	for _, h := range v.holds {
		if s, shares := shortage.SharerOf("", *h.hold); shares {
			s.Name = name(h.uid)
			n.Sharers = append(n.Sharers, s)
		}
	}
	return n.Reason(r.Request)
}
