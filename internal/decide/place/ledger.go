package place

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/pick"
)

// A Ledger is the state of the CPUs of a cluster. For a pod that its node
// reports, the report counts; for a bound pod that is not reported, its
// contract; for a pod in flight, its reservation. The ledger remembers nothing
// else, so a new ledger that learns the same pods and reports has the same
// state. Callers must serialize the calls.
type Ledger struct {
	maps  map[pick.Hash]*pick.Map
	nodes map[string]*place
	pods  map[UID]*entry
}

// A place is the state of one node.
type place struct {
	report   Report
	m        *pick.Map // nil: no report
	out      Reason
	facts    map[UID]*pick.Hold
	promised map[UID]*entry // the pods of the ledger on this node
	gone     map[UID]bool   // deleted pods that the report still has
	loose    int            // number of promised pods for which the node chooses
	view     *View          // nil: look must make it
}

// An entry is a pod of the ledger on its node.
type entry struct {
	pod      Pod
	node     string
	contract Contract
	state    state
	hold     held
	loose    bool // the contract is not for the demand, so the node chooses
	// before is the view of the node without the reservation, and after the
	// view with it. If nothing else has changed, a release restores before.
	before, after *View
}

type state uint8

const (
	reserved state = iota
	doubtful       // a bind was sent, and its answer is not known
	bound
)

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{maps: map[pick.Hash]*pick.Map{}, nodes: map[string]*place{}, pods: map[UID]*entry{}}
}

func (l *Ledger) at(node string) *place {
	p := l.nodes[node]
	if p == nil {
		p = &place{out: NoReport, facts: map[UID]*pick.Hold{}, promised: map[UID]*entry{}, gone: map[UID]bool{}}
		l.nodes[node] = p
	}
	return p
}

// Learn records the report of a node.
func (l *Ledger) Learn(node string, r Report) {
	p := l.at(node)
	m := pick.Compile(r.Topology)
	if shared, known := l.maps[m.Hash()]; known {
		m = shared
	} else {
		l.maps[m.Hash()] = m
	}
	p.report, p.m, p.out = r, m, pick.Fits
	if r.Manager != "" {
		p.out = OtherManager
	}
	p.facts = make(map[UID]*pick.Hold, len(r.Held))
	for i := range r.Held {
		p.facts[r.Held[i].UID] = &r.Held[i].Hold
	}
	for uid := range p.gone {
		if _, still := p.facts[uid]; !still {
			delete(p.gone, uid)
		}
	}
	p.view = nil
}

// Out excludes a node from new pods, for a reason. With the reason Fits, or
// after a report, the node takes pods again.
func (l *Ledger) Out(node string, why Reason) {
	p := l.at(node)
	if p.m == nil {
		why = NoReport
	}
	p.out, p.view = why, nil
}

// Forget removes a node.
func (l *Ledger) Forget(node string) {
	if p := l.nodes[node]; p != nil {
		for uid := range p.promised {
			delete(l.pods, uid)
		}
		delete(l.nodes, node)
	}
}

// Bound records that a pod is bound to a node by a contract. A pod without a
// contract has the zero Contract. For such a pod, the node makes the same
// choice as the ledger. Bound returns false if the pod has the CPUs that were
// reserved for it, so that no view changes.
func (l *Ledger) Bound(p Pod, node string, c Contract) bool {
	if e := l.pods[p.UID]; e != nil && e.node == node && e.pod.Demand.same(&p.Demand) && e.contract.same(&c) {
		e.state, e.before, e.after = bound, nil, nil
		return false
	}
	l.remove(p.UID)
	l.add(&entry{pod: p, node: node, contract: c, state: bound})
	return true
}

// Reserve chooses CPUs for a pod on a node and reserves them.
func (l *Ledger) Reserve(p Pod, node string) (Contract, Reason) {
	if e := l.pods[p.UID]; e != nil {
		if e.state == bound {
			return Contract{}, NotHere
		}
		l.remove(p.UID) // the scheduler schedules the pod again, so the doubtful bind did not happen
	}
	v := l.View(node)
	c, _, why := v.Offer(&p.Demand)
	if why != pick.Fits {
		return Contract{}, why
	}
	e := &entry{pod: p, node: node, contract: c, state: reserved}
	l.add(e)
	e.before, e.after = v, l.nodes[node].view
	return c, pick.Fits
}

// Doubt keeps the CPUs of a pod that may or may not have been bound.
func (l *Ledger) Doubt(uid UID) {
	if e := l.pods[uid]; e != nil && e.state == reserved {
		e.state = doubtful
	}
}

// Doubtful reports whether it is still unknown if the pod was bound. The caller
// calls Release when it has waited long enough.
func (l *Ledger) Doubtful(uid UID) bool {
	e := l.pods[uid]
	return e != nil && e.state == doubtful
}

// Release gives up the reservation of a pod that was not bound.
func (l *Ledger) Release(uid UID) {
	if e := l.pods[uid]; e != nil && e.state != bound {
		l.remove(uid)
	}
}

// Gone removes a pod that was deleted or has ended. A later report may still
// contain the pod; the ledger then ignores it.
func (l *Ledger) Gone(uid UID) {
	if e := l.pods[uid]; e != nil {
		p := l.nodes[e.node]
		if _, reported := p.facts[uid]; reported {
			p.gone[uid] = true
		}
	}
	l.remove(uid)
}

// Contract returns the contract of a pod, and its node.
func (l *Ledger) Contract(uid UID) (Contract, string, bool) {
	e := l.pods[uid]
	if e == nil {
		return Contract{}, "", false
	}
	return e.contract, e.node, true
}

// Node returns the node of a pod; false: the ledger does not have the pod.
func (l *Ledger) Node(uid UID) (string, bool) {
	e := l.pods[uid]
	if e == nil {
		return "", false
	}
	return e.node, true
}

// add puts a pod on its node. It derives the next view from the present one if
// look would give the same result.
func (l *Ledger) add(e *entry) {
	p := l.at(e.node)
	e.hold, e.loose = heldBy(e.pod, e.contract), !e.contract.Matches(e.pod.Demand)
	l.pods[e.pod.UID], p.promised[e.pod.UID] = e, e
	if e.loose {
		p.loose++
	}
	_, reported := p.facts[e.pod.UID]
	delete(p.gone, e.pod.UID)
	if p.view == nil || p.loose > 0 || reported || p.m == nil {
		p.view = nil
		return
	}
	p.view = p.view.with(e.hold)
}

// remove takes a pod off its node.
func (l *Ledger) remove(uid UID) {
	e := l.pods[uid]
	if e == nil {
		return
	}
	p := l.nodes[e.node]
	delete(p.promised, uid)
	delete(l.pods, uid)
	_, reported := p.facts[uid]
	switch {
	case p.view == nil, p.loose > 0:
		p.view = nil
	case reported && !p.gone[uid]: // the state from the report stays
	case e.after != nil && p.view == e.after:
		p.view = e.before
	default:
		p.view = p.view.Without(uid)
	}
	if e.loose {
		p.loose--
	}
}

// View returns the present state of a node. Later changes of the ledger do not
// change it.
func (l *Ledger) View(node string) *View {
	p := l.nodes[node]
	if p == nil {
		return &View{out: NoReport}
	}
	if p.view == nil {
		p.view = p.look()
	}
	return p.view
}

// Without returns the view of a node without those bound pods that the other
// list of the cluster, listed, does not contain.
func (l *Ledger) Without(node string, listed func(UID) bool) *View {
	v := l.View(node)
	p := l.nodes[node]
	if p == nil {
		return v
	}
	var ended []UID
	for uid, e := range p.promised {
		if e.state == bound && !listed(uid) {
			ended = append(ended, uid)
		}
	}
	if len(ended) == 0 {
		return v
	}
	return v.Without(ended...)
}

// look merges the reports, contracts and reservations of all pods into a view.
func (p *place) look() *View {
	if p.m == nil {
		return &View{out: p.out}
	}
	holds := make([]held, 0, len(p.facts)+len(p.promised))
	for uid, h := range p.facts {
		if !p.gone[uid] {
			holds = append(holds, held{uid, h})
		}
	}
	var open []*entry // the node chooses for these pods itself
	for uid, e := range p.promised {
		switch _, known := p.facts[uid]; {
		case known:
		case e.loose:
			open = append(open, e)
		default:
			holds = append(holds, e.hold)
		}
	}
	slices.SortFunc(holds, func(a, b held) int { return strings.Compare(string(a.uid), string(b.uid)) })
	slices.SortFunc(open, func(a, b *entry) int { return strings.Compare(string(a.pod.UID), string(b.pod.UID)) })
	v := viewOf(p.m, p.out, p.report, holds)
	for _, e := range open {
		v = v.With(e.pod, Contract{})
	}
	return v
}
