package place

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
)

// A Ledger is the state of the CPUs of a cluster. A pod that its node reports
// holds the CPUs in the report, or none if the report lists it as refused. A pod
// that is bound but not reported holds the CPUs of its contract. A pod that is
// only reserved holds the CPUs of its reservation. The ledger has no other
// memory: a new ledger that learns the same pods and reports has the same state.
type Ledger struct {
	maps  map[cpus.Hash]*pick.Map
	nodes map[string]*place
	pods  map[UID]*entry // reserved and bound pods
	// doubts has an entry for each bind that was sent and whose answer is not
	// known. A pod may have one entry for each node, and also one in pods.
	doubts map[UID][]*entry
}

// A place is the state of one node.
type place struct {
	report   Report
	m        *pick.Map // nil: no report
	out      cpus.Code
	facts    map[UID]*cpus.Allocation
	refused  map[UID]bool   // the pods to which the node gave no CPUs; nil on most nodes
	promised map[UID]*entry // the pods of the ledger on this node
	gone     map[UID]bool   // deleted pods that the report still has
	loose    int            // number of promised pods for which the node itself chooses CPUs, but has not reported them yet
	view     *View          // nil: look must make it
}

// An entry is a pod of the ledger on its node.
type entry struct {
	pod      Pod
	node     string
	contract Contract
	state    state
	hold     held
	loose    bool // the contract is not for the demand (see isLoose)
	again    bool // the pod was in doubt on this node before it was reserved there again
	// before is the view of the node without the reservation, and after is the
	// view with it. A release before any other change restores the first one.
	before, after *View
}

type state uint8

const (
	assumed  state = iota
	doubtful       // a bind was sent, and its answer is not known
	bound
)

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{maps: map[cpus.Hash]*pick.Map{}, nodes: map[string]*place{}, pods: map[UID]*entry{}, doubts: map[UID][]*entry{}}
}

func (l *Ledger) at(node string) *place {
	p := l.nodes[node]
	if p == nil {
		p = &place{out: cpus.NoReport, facts: map[UID]*cpus.Allocation{}, promised: map[UID]*entry{}, gone: map[UID]bool{}}
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
	p.report, p.m, p.out = r, m, cpus.Fits
	if r.Manager != "" {
		p.out = cpus.OtherManager
	}
	p.facts, p.refused = make(map[UID]*cpus.Allocation, len(r.Pods)), nil
	for uid, a := range r.Pods {
		switch {
		case !a.CPUs.Empty():
			p.facts[uid] = &a
		case p.refused == nil:
			p.refused = map[UID]bool{uid: true}
		default:
			p.refused[uid] = true
		}
	}
	for uid := range p.gone {
		if _, still := p.facts[uid]; !still {
			delete(p.gone, uid)
		}
	}
	p.loose = 0
	for _, e := range p.promised {
		p.loose += p.looseness(e)
	}
	p.view = nil
}

// looseness returns what a pod adds to the number of loose pods: 1 or 0.
func (p *place) looseness(e *entry) int {
	if _, reported := p.facts[e.pod.UID]; p.isLoose(e) && !reported && !p.refuses(e) {
		return 1
	}
	return 0
}

// isLoose reports whether the node chooses the CPUs of a pod itself: the contract
// is not for the demand, or it is for other hardware than the node has now (Check).
func (p *place) isLoose(e *entry) bool {
	return e.loose || p.m != nil && e.contract.Topology != 0 && e.contract.Topology != p.m.Hash()
}

// refuses reports whether a pod holds nothing because the node gave it no CPUs.
// An agent lists only bound pods, and a pod is bound once. So the report is
// younger than the binding, even if the ledger learns it first. A pod that the
// ledger does not know as bound keeps its reservation.
func (p *place) refuses(e *entry) bool { return e.state == bound && p.refused[e.pod.UID] }

// CloseNode closes a node to new pods and records the reason. The reason Fits,
// or a new report, opens the node again.
func (l *Ledger) CloseNode(node string, why cpus.Code) {
	p := l.at(node)
	if p.m == nil {
		why = cpus.NoReport
	}
	p.out, p.view = why, nil
}

// IsUnused reports whether no pod is bound to a node or reserved there. Pods that
// only a report has do not count: the next report will have them again.
func (l *Ledger) IsUnused(node string) bool {
	p := l.nodes[node]
	return p == nil || len(p.promised) == 0
}

// RemoveNode removes a node.
func (l *Ledger) RemoveNode(node string) {
	if p := l.nodes[node]; p != nil {
		for _, e := range p.promised {
			l.unlist(e)
		}
		delete(l.nodes, node)
	}
}

// Confirm records that a pod is bound to a node by a contract. A pod without a
// contract has the zero Choice. For such a pod, the node makes the same
// choice as the ledger. A pod is bound once, so all doubts about it end. Confirm
// returns false if no view changes: the pod already held these CPUs, and none
// on other nodes.
func (l *Ledger) Confirm(p Pod, node string, c cpus.Choice) bool {
	var here *entry
	changed := false
	l.eachHold(p.UID, func(e *entry) {
		if e.node == node {
			here = e
		} else {
			l.remove(e)
			changed = true
		}
	})
	if here != nil && here.pod.Request.Equal(&p.Request) && here.contract.Equal(&c) {
		if here.state == doubtful {
			l.unlist(here)
			l.pods[p.UID] = here
		}
		p, reserved := l.nodes[node], here.state != bound
		p.loose -= p.looseness(here)
		here.state, here.again, here.before, here.after = bound, false, nil, nil // the CPUs are as reserved, so the view stays
		p.loose += p.looseness(here)
		if reserved && p.refuses(here) { // the report was faster than the news of the binding
			p.view = nil
			return true
		}
		return changed
	}
	if here != nil {
		l.remove(here)
	}
	l.add(&entry{pod: p, node: node, contract: Contract{Choice: c}, state: bound})
	return true
}

// eachHold calls do for each entry of a pod.
func (l *Ledger) eachHold(uid UID, do func(*entry)) {
	if e := l.pods[uid]; e != nil {
		do(e)
	}
	for _, e := range slices.Clone(l.doubts[uid]) { // do may remove e
		do(e)
	}
}

// findDoubt returns the entry of a pod whose bind to a node is in doubt, or
// nil.
func (l *Ledger) findDoubt(uid UID, node string) *entry {
	for _, e := range l.doubts[uid] {
		if e.node == node {
			return e
		}
	}
	return nil
}

// Assume chooses CPUs for a pod on a node and reserves them. If an earlier
// bind to this node is in doubt, the pod gets the contract of that bind again,
// because the bind may have happened. The pod keeps its CPUs on other nodes
// where a bind is in doubt.
func (l *Ledger) Assume(p Pod, node string) (Contract, cpus.Code) {
	if e := l.pods[p.UID]; e != nil {
		if e.state == bound {
			return Contract{}, cpus.NotHere
		}
		l.Forget(p.UID)
	}
	v := l.View(node)
	if e := l.findDoubt(p.UID, node); e != nil {
		if v.out != cpus.Fits {
			return Contract{}, v.out
		}
		if e.pod.Request.Equal(&p.Request) && e.contract.Topology == v.m.Hash() {
			l.unlist(e)
			e.state, e.again = assumed, true
			l.pods[p.UID] = e
			return e.contract, cpus.Fits
		}
		l.remove(e) // its contract is not for this demand or this hardware
		v = l.View(node)
	}
	c, _, why := v.Offer(&p.Request)
	if why != cpus.Fits {
		return Contract{}, why
	}
	e := &entry{pod: p, node: node, contract: c, state: assumed}
	l.add(e)
	e.before, e.after = v, l.nodes[node].view
	return c, cpus.Fits
}

// Doubt keeps the CPUs of a reserved pod that may or may not have been bound. It
// returns the node, or false if the pod is not reserved.
func (l *Ledger) Doubt(uid UID) (string, bool) {
	e := l.pods[uid]
	if e == nil || e.state != assumed {
		return "", false
	}
	delete(l.pods, uid)
	e.state = doubtful
	l.doubts[uid] = append(l.doubts[uid], e)
	return e.node, true
}

// Doubts returns the nodes on which a pod holds CPUs because of a bind in doubt.
func (l *Ledger) Doubts(uid UID) []string {
	var nodes []string
	for _, e := range l.doubts[uid] {
		nodes = append(nodes, e.node)
	}
	return nodes
}

// ForgetDoubt records that a bind in doubt did not happen. It reports whether the
// pod gave up CPUs.
func (l *Ledger) ForgetDoubt(uid UID, node string) bool {
	if e := l.pods[uid]; e != nil && e.node == node {
		e.again = false
	}
	e := l.findDoubt(uid, node)
	if e != nil {
		l.remove(e)
	}
	return e != nil
}

// Forget gives up the reservation of a pod that was not bound. If an earlier
// bind to the same node is in doubt, the pod keeps its CPUs.
func (l *Ledger) Forget(uid UID) {
	e := l.pods[uid]
	switch {
	case e == nil || e.state == bound:
	case e.again:
		l.Doubt(uid)
	default:
		l.remove(e)
	}
}

// RemovePod removes a pod that was deleted or has ended. If a later report still
// contains the pod, the ledger ignores it.
func (l *Ledger) RemovePod(uid UID) {
	l.eachHold(uid, func(e *entry) {
		p := l.nodes[e.node]
		if _, reported := p.facts[uid]; reported {
			p.gone[uid] = true
		}
		l.remove(e)
	})
}

// Forgo records that a running pod demands no CPUs any more. If its node has
// reported the pod, the pod holds its CPUs until a report lacks it: until then,
// the node binds the pod to them.
func (l *Ledger) Forgo(uid UID) { l.eachHold(uid, l.remove) }

// Contract returns the contract of a reserved or bound pod, and its node.
func (l *Ledger) Contract(uid UID) (Contract, string, bool) {
	e := l.pods[uid]
	if e == nil {
		return Contract{}, "", false
	}
	return e.contract, e.node, true
}

// Node returns the node of a pod, or false if the ledger does not have the pod.
func (l *Ledger) Node(uid UID) (string, bool) {
	e := l.pods[uid]
	if e == nil {
		return "", false
	}
	return e.node, true
}

// add puts a pod on its node. It derives the next view from the present one
// where this gives the same result as look.
func (l *Ledger) add(e *entry) {
	p := l.at(e.node)
	e.hold, e.loose = heldBy(e.pod, e.contract.Choice), !e.contract.Matches(e.pod.Request.Request)
	l.pods[e.pod.UID], p.promised[e.pod.UID] = e, e
	p.loose += p.looseness(e)
	_, reported := p.facts[e.pod.UID]
	delete(p.gone, e.pod.UID)
	if p.refuses(e) {
		return
	}
	if p.view == nil || p.loose > 0 || reported || p.m == nil {
		p.view = nil
		return
	}
	p.view = p.view.at(p.view.with(e.hold))
}

// unlist removes a pod from the lists of the ledger, but not from its node.
func (l *Ledger) unlist(e *entry) {
	uid := e.pod.UID
	if l.pods[uid] == e {
		delete(l.pods, uid)
		return
	}
	left := slices.DeleteFunc(l.doubts[uid], func(d *entry) bool { return d == e })
	if l.doubts[uid] = left; len(left) == 0 {
		delete(l.doubts, uid)
	}
}

// remove takes a pod off its node.
func (l *Ledger) remove(e *entry) {
	uid := e.pod.UID
	p := l.nodes[e.node]
	delete(p.promised, uid)
	l.unlist(e)
	_, reported := p.facts[uid]
	switch {
	case p.refuses(e): // it held nothing
	case p.view == nil, p.loose > 0:
		p.view = nil
	case reported && !p.gone[uid]: // the state from the report stays
	case e.after != nil && p.view == e.after:
		p.view = e.before
	default:
		p.view = p.view.Without(uid)
	}
	p.loose -= p.looseness(e)
}

// View returns the present state of a node. Later changes of the ledger do not
// change it.
func (l *Ledger) View(node string) *View {
	p := l.nodes[node]
	if p == nil {
		return &View{out: cpus.NoReport}
	}
	if p.view == nil {
		p.view = p.look()
	}
	return p.view
}

// look makes a view from the reports, contracts and reservations of all pods.
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
		case known, p.refuses(e):
		case p.isLoose(e):
			open = append(open, e)
		default:
			holds = append(holds, e.hold)
		}
	}
	slices.SortFunc(open, func(a, b *entry) int { return strings.Compare(string(a.pod.UID), string(b.pod.UID)) })
	v := (&View{out: p.out, manager: p.report.Manager}).at(nodeOf(p.m, p.report.Reserved, p.report.Keep, holds))
	for _, e := range open {
		v = v.With(e.pod, cpus.Choice{})
	}
	return v
}
