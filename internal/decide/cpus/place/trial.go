package place

import (
	"iter"

	"tenon.sh/tenon/internal/model/cpus"
)

// Rehearse reserves CPUs for a pod on a node as if the pods that Without removes
// were gone. These pods still hold their CPUs, so the pod must not be bound with
// this choice.
func (l *Ledger) Rehearse(p Pod, node string, listed iter.Seq[UID]) (Contract, cpus.Code) {
	if l.pods[p.UID] != nil || l.findDoubt(p.UID, node) != nil {
		return Contract{}, cpus.NotHere
	}
	c, _, why := l.Without(node, listed).Offer(&p.Request)
	if why == cpus.Fits {
		l.add(&entry{pod: p, node: node, contract: c, state: assumed})
	}
	return c, why
}

// Without returns the view of a node without the bound pods that are missing in
// listed, which is another list of the node's pods.
func (l *Ledger) Without(node string, listed iter.Seq[UID]) *View {
	v := l.View(node)
	p := l.nodes[node]
	if p == nil {
		return v
	}
	missing := 0
	for _, e := range p.promised {
		if e.state == bound {
			missing++
		}
	}
	for uid := range listed {
		if e := p.promised[uid]; e != nil && e.state == bound {
			missing--
		}
	}
	if missing == 0 { // most nodes
		return v
	}
	there := map[UID]bool{}
	for uid := range listed {
		there[uid] = true
	}
	var ended []UID
	for uid, e := range p.promised {
		if e.state == bound && !there[uid] {
			ended = append(ended, uid)
		}
	}
	return v.Without(ended...)
}
