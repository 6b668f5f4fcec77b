package place

import (
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
)

// A View is the state of one node of a cluster at one time: who has which CPUs,
// whether the node takes pods now, and how much room it has. It does not change,
// so many filters can read it at once.
type View struct {
	out cpus.Code // filters read only out and sum
	sum pick.Summary
	Node
	// manager names the program because of which the node takes no pods.
	manager string
}

// at returns the view after a change of its node.
func (v *View) at(n Node) *View {
	return &View{out: v.out, sum: n.m.Sum(n.seats), Node: n, manager: v.manager}
}

// Room returns the reason why the node does not take the demand, or Fits. It
// does not allocate memory.
func (v *View) Room(d *cpus.PodRequest) cpus.Code {
	if v.out != cpus.Fits {
		return v.out
	}
	return v.sum.Room(&d.Request)
}

// Worth rates the node from 0 to 100 for a demand that fits. It does not
// allocate memory.
func (v *View) Worth(d *cpus.PodRequest) int64 { return v.sum.Worth(&d.Request) }

// Offer chooses CPUs for a demand. It chooses as Ledger.Assume does, but
// reserves nothing.
func (v *View) Offer(d *cpus.PodRequest) (Contract, pick.Offer, cpus.Code) {
	if why := v.Room(d); why != cpus.Fits {
		return Contract{}, pick.Offer{}, why
	}
	o, why := v.m.Fit(v.seats, d.Request)
	if why != cpus.Fits {
		return Contract{}, pick.Offer{}, why
	}
	return ContractOf(v.m, *d, o), o, cpus.Fits
}

// Without returns the view that would result if the given pods held nothing.
// Preemption uses it.
func (v *View) Without(uids ...UID) *View {
	if v.m == nil {
		return v
	}
	return v.at(v.Node.Without(uids...))
}

// With returns the view with one more pod. The pod gets the CPUs of its
// choice. If the choice does not match the request, for example the zero Choice,
// With chooses CPUs. If the pod does not fit, With returns v.
func (v *View) With(p Pod, c cpus.Choice) *View {
	if v.m == nil || v.Has(p.UID) {
		return v
	}
	if c.Topology != v.m.Hash() || !c.Matches(p.Request.Request) {
		o, why := v.m.Fit(v.seats, p.Request.Request)
		if why != cpus.Fits {
			return v
		}
		c = ContractOf(v.m, p.Request, o).Choice
	}
	return v.at(v.with(heldBy(p, c)))
}

func heldBy(p Pod, c cpus.Choice) held {
	h := c.Allocation(p.Request.Request)
	return held{p.UID, &h}
}

// Stranded returns the number of stranded CPUs: they are free for exclusive
// use, but no demand of n CPUs within one L3 cache can use them.
func (v *View) Stranded(n int) int { return v.sum.Stranded(n) }

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
	return v.Node.Explain(r.Request, name)
}
