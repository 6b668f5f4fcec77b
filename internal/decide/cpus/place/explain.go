package place

import (
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/shortage"
)

// Explain returns the reason why the node does not take the demand, with the
// numbers of the node and the names of the pods that need its CPUs. It returns
// "" if the node takes the demand. name returns the name of a pod.
//
// A scheduler reports the result of Room instead. Its message counts the nodes
// with the same text, and numbers would make the texts differ. Explain is for a
// reader who looks at one node.
func (v *View) Explain(d *Demand, name func(UID) string) string {
	switch {
	case v.out == OtherManager && v.manager != "":
		return string(OtherManager) + ": " + v.manager
	case v.out != pick.Fits:
		return string(v.out)
	}
	n := shortage.Node{Map: v.m, Seats: v.seats}
	for _, h := range v.holds {
		if s, shares := shortage.SharerOf("", *h.hold); shares {
			s.Name = name(h.uid)
			n.Sharers = append(n.Sharers, s)
		}
	}
	return n.Explain(d.Claim)
}
