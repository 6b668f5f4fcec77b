package hold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// An oracleClaim is the demand of one workload for own CPUs.
type oracleClaim struct {
	work node.Workload
	cpus int
	had  unit.CPUSet
}

func (c oracleClaim) compare(o oracleClaim) int {
	return claim{work: &c.work, had: c.had}.compare(claim{work: &o.work, had: o.had})
}

// decideAsBefore is Decide as it was before it had a ledger. A workload keeps its CPUs while it demands the same
// number, so a workload that is new or grows never moves another.
//
// Workloads that demand no more CPUs than they have come first: they keep their
// CPUs, or the best of them. Workloads that demand more follow, and new ones
// come last. In each group, those with a scheduler's choice come first. Among
// equals, priority, class (LSE before LSR) and name decide. If too few CPUs are
// left for a workload, it is treated as LS.
//
// A grant always leaves enough CPUs for the system and for BE. A new grant also
// leaves as many CPUs as the services without exclusive CPUs request. This does
// not apply to the choices of a scheduler, which knows these requests.
func decideAsBefore(shared facts.NodeCPUs, keep unit.Percent, had Held, s node.Snapshot) Grants {
	var g Grants
	var asked []oracleClaim
	pool := shared.Counted(s)
	free := pool
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if !Demands(w) {
			continue
		}
		if g.Allocations == nil {
			g = Grants{Held: Held{Allocations: map[node.WorkloadID]cpus.Allocation{}}, Map: pick.Compile(s.Topology)}
		}
		if w.Overrides.CPUs.Policy > cpus.Exclusive {
			continue
		}
		knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
		n, why := Claimed(w)
		if _, shown := s.Knobs.Now[knob]; why.Code == cpus.Fits && !shown {
			why.Code = cpus.NoCPUSet
			own, _ := had.Exclusive(w.ID)
			if set := own.Intersect(pool); !set.Empty() { // while the knob cannot be read, the workload keeps its CPUs
				g.Allocations[w.ID] = exclusive(w, set)
				g.note(w.ID, cpus.Note{By: cpus.ByNode, Policy: cpus.Exclusive, Asked: n, Has: set.Len(), Reason: &cpus.Reason{Code: cpus.CPUSetMissing}})
				free = free.Minus(set)
				continue
			}
		}
		if why.Code != cpus.Fits {
			set, bound := BoundTo(s.Knobs, w, pool)
			if bound {
				free = free.Minus(set)
			}
			g.note(w.ID, cpus.Note{Policy: cpus.Exclusive, Asked: n, Reason: &why, Bound: bound})
			continue
		}
		asked = append(asked, oracleClaim{*w, n, previousCPUs(had, s, w, n)})
	}
	if g.Allocations == nil {
		return g
	}
	slices.SortFunc(asked, oracleClaim.compare)
	r := oracle{Grants: g, snap: s, asked: asked, had: had, pool: pool, free: free, begin: free, least: Keep(keep, pool), counted: countedOn(s)}
	r.divide(asked)
	r.share()
	r.Open = r.free
	return r.Grants
}

// An oracle holds the input and the result of one call of Decide.
type oracle struct {
	Grants
	snap       node.Snapshot
	had        Held
	asked      []oracleClaim // all claims for own CPUs
	begin      unit.CPUSet   // free at the start
	pool, free unit.CPUSet   // pool: the CPUs that are divided; free: those of them that no workload owns
	least      int           // number of CPUs that stay free
	counted    int           // number of CPUs that services without own CPUs request
}

// grant gives some of the free CPUs to a workload. At least r.least CPUs stay
// free. After a claim that is new or has grown, at least r.counted CPUs must
// stay free, too. A scheduler's choice is exempt from this.
func (r *oracle) grant(c oracleClaim) {
	id, free := c.work.ID, r.openTo(c)
	had := c.had.Intersect(free)
	spare := r.free.Len() - r.least
	give := func(set unit.CPUSet, n cpus.Note) {
		n.Policy, n.Asked, n.Has = cpus.Exclusive, c.cpus, set.Len()
		r.Allocations[id] = exclusive(&c.work, set)
		r.note(id, n)
		r.free = r.free.Minus(set)
	}
	var no *cpus.Reason
	if chosen := c.work.Overrides.CPUs.Chosen; chosenPolicy(&c.work.Overrides.CPUs) != 0 {
		if no = r.refuse(*chosen, c, had, free, spare); no == nil && (had.Empty() || had == chosen.CPUs) {
			give(chosen.CPUs, spread(cpus.Note{}, cpus.ByScheduler, r.Map.Judge(chosen.CPUs)))
			return
		}
	}
	more := spare
	if c.cpus > had.Len() {
		more = r.free.Len() - max(r.least, r.counted)
	}
	shared, sharers := r.sharedBefore()
	seats := r.Map.Seats(r.Map.All().Minus(free), 0, append(shared, r.apartFrom(c.work)...))
	want := requestOf(&c.work, c.cpus)
	if c.cpus <= more {
		if o, not := r.Map.Resize(seats, want, had); not == cpus.Fits {
			n := spread(cpus.Note{}, cpus.ByNode, o)
			n.Choice = choiceOf(&c.work, no)
			give(o.CPUs, n)
			return
		}
	}
	lacks := r.lacks(c, free, spare, more)
	if lacks.Code == cpus.Fits {
		lacks = r.numbers(free, sharers, r.apartFrom(c.work), want)
	}
	if n := had.Len(); n > 0 && n <= spare { // the larger claim does not fit, so it keeps its CPUs
		give(had, cpus.Note{By: cpus.ByNode, Reason: &lacks})
		return
	}
	r.note(id, cpus.Note{Policy: cpus.Exclusive, Asked: c.cpus, Reason: &lacks, Choice: no})
}

// divide grants the claims in their order, in two passes. The first pass grants
// claims that demand no more than the workload has, and keeps what the other
// workloads have. The second pass grants the other claims. So a workload that
// grows, or that is new, takes no CPU that another one keeps.
func (r *oracle) divide(claims []oracleClaim) {
	var later []oracleClaim
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
func (r *oracle) openTo(c oracleClaim) unit.CPUSet {
	return r.free.Intersect(RoomBefore(r.snap.Knobs, c.work.Cgroup, r.snap.Topology.All()))
}

// sharedBefore lists the seats and pools of the last tick, and the workloads
// that held them. If a workload held none, its entry is the choice of a
// scheduler, if there is one.
func (r *oracle) sharedBefore() (all []cpus.Allocation, sharers map[place.UID]cpus.Allocation) {
	sharers = map[place.UID]cpus.Allocation{}
	for i := range r.snap.Workloads {
		w := &r.snap.Workloads[i]
		o := &w.Overrides.CPUs
		if o.Policy <= cpus.Exclusive || !Demands(w) {
			continue
		}
		h, held := r.had.Shared(w.ID)
		if !held {
			var no *cpus.Reason
			if h, no = r.chosenHome(*o); no != nil {
				continue
			}
		}
		h.CPU, h.Exclusive = o.CPU, o.Exclusive // before, it took those of the last tick, and so kept away from work that had changed its policy
		all = append(all, h)
		sharers[place.UID(w.ID)] = h
	}
	return all, sharers
}

// share grants seats and pools after all own CPUs. Workloads that already had
// seats or a pool come first. Those with a scheduler's choice follow, and then
// the others by name.
func (r *oracle) share() {
	var asked []node.Workload
	for i := range r.snap.Workloads {
		w := &r.snap.Workloads[i]
		if Demands(w) && w.Overrides.CPUs.Policy > cpus.Exclusive {
			asked = append(asked, *w)
		}
	}
	rank := func(w node.Workload) int {
		switch _, held := r.had.Shared(w.ID); {
		case held:
			return 0
		case chosenPolicy(&w.Overrides.CPUs) != 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(asked, func(a, b node.Workload) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(string(a.ID), string(b.ID)))
	})
	var holds []cpus.Allocation
	for _, w := range asked {
		_, shown := r.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}]
		if _, held := r.had.Shared(w.ID); !shown && !held { // before, work whose knob could not be read lost what it held
			r.note(w.ID, cpus.Note{Policy: w.Overrides.CPUs.Policy, Asked: w.Overrides.CPUs.CPUs, Reason: &cpus.Reason{Code: cpus.NoCPUSet}})
			continue
		}
		h, n := r.seat(w, holds)
		if !shown && !h.CPUs.Empty() {
			n.By, n.Choice, n.Reason = cpus.ByNode, nil, &cpus.Reason{Code: cpus.CPUSetMissing}
		}
		n.Policy, n.Asked = w.Overrides.CPUs.Policy, w.Overrides.CPUs.CPUs
		if !h.CPUs.Empty() {
			n.Has, n.Level = h.CPUs.Len(), r.Map.LevelOf(h.Domain)
			holds = append(holds, h)
			r.Allocations[w.ID] = h
		}
		r.note(w.ID, n)
	}
}

// seat chooses the seats or the pool of one workload. holds has those of earlier
// workloads. If the workload gets nothing, the Allocation is empty.
func (r *oracle) seat(w node.Workload, holds []cpus.Allocation) (cpus.Allocation, cpus.Note) {
	o := w.Overrides.CPUs
	open := r.free.Intersect(RoomBefore(r.snap.Knobs, w.Cgroup, r.snap.Topology.All()))
	seats := r.Map.Seats(r.Map.All().Minus(open), 0, slices.Concat(holds, r.apartFrom(w)))
	var h cpus.Allocation
	var no *cpus.Reason
	possible, lost := false, false
	if chosenPolicy(&o) != 0 {
		h, no = r.chosenHome(o)
		possible = no == nil
	}
	if before, had := r.had.Shared(w.ID); had && before.Policy == o.Policy {
		before.CPU, before.Exclusive = o.CPU, o.Exclusive
		if set, moved := r.Map.Reseat(seats, before, o.CPUs); !set.Empty() {
			before.CPUs = set
			if !possible || o.Chosen.Domain != before.Domain {
				return before, cpus.Note{By: cpus.ByNode, Moved: moved, Choice: choiceOf(&w, no)}
			}
			return before, cpus.Note{By: cpus.ByScheduler, Moved: moved}
		}
		lost = true
	} else if possible {
		if set, moved := r.Map.Reseat(seats, h, o.CPUs); !set.Empty() {
			h.CPUs = set
			return h, cpus.Note{By: cpus.ByScheduler, Moved: moved}
		}
		no = &cpus.Reason{Code: cpus.ChoiceFull}
	}
	offer, not := r.Map.Fit(seats, o.Request)
	if not != cpus.Fits {
		why := r.numbers(open, r.sharers(), r.apartFrom(w), o.Request)
		return cpus.Allocation{}, cpus.Note{Reason: &why, Choice: no}
	}
	if lost {
		return offer.Allocation(o.Request), cpus.Note{By: cpus.ByNode, Choice: &cpus.Reason{Code: cpus.DomainLost}}
	}
	return offer.Allocation(o.Request), cpus.Note{By: cpus.ByNode, Choice: choiceOf(&w, no)}
}

// sharers returns the workloads that have seats or pools so far.
func (r *oracle) sharers() map[place.UID]cpus.Allocation {
	all := map[place.UID]cpus.Allocation{}
	for id := range r.Allocations {
		if h, shares := r.Shared(id); shares {
			all[place.UID(id)] = h
		}
	}
	return all
}

func (r *oracle) numbers(open unit.CPUSet, sharers map[place.UID]cpus.Allocation, apart []cpus.Allocation, want cpus.Request) cpus.Reason {
	for i, a := range apart {
		sharers[place.UID(fmt.Sprint("apart", i))] = cpus.Allocation{CPUs: a.CPUs, Exclusive: a.Exclusive}
	}
	n := place.NewNode(r.Map, r.Map.All().Minus(open), 0, sharers)
	return numbersOf(&n, want)
}

// chosenHome returns the seats or the pool that a scheduler chose, or the reason
// why the node cannot follow this choice.
func (r *oracle) chosenHome(o node.CPUOverride) (cpus.Allocation, *cpus.Reason) {
	c, none := o.Chosen, cpus.Allocation{}
	switch {
	case c == nil:
		return none, &cpus.Reason{Code: cpus.NoChoice}
	case c.Topology != 0 && c.Topology != r.Map.Hash(): // before, it came after the number, and for own CPUs before the policy
		return none, &cpus.Reason{Code: cpus.ChoiceForTopology}
	case c.Policy != o.Policy:
		return none, &cpus.Reason{Code: cpus.ChoiceForPolicy, Policy: c.Policy}
	case c.Policy == cpus.Shared && c.CPUs.Len() != o.CPUs:
		return none, &cpus.Reason{Code: cpus.ChoiceForNumber, CPUs: c.CPUs, Request: o.Request}
	case c.Domain.Empty():
		return none, &cpus.Reason{Code: cpus.ChoiceWithoutDomain}
	case !r.Map.All().Contains(c.Domain):
		return none, &cpus.Reason{Code: cpus.ChoiceOffline, CPUs: c.Domain.Minus(r.Map.All())}
	}
	return c.Allocation(o.Request), nil
}

// apartFrom lists the CPUs of the other workloads that should not share cores,
// or NUMA nodes, with w. It is empty if w may share them with all work.
func (r *oracle) apartFrom(w node.Workload) []cpus.Allocation {
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
func (r *oracle) usedBy(w *node.Workload) unit.CPUSet {
	o := w.Overrides.CPUs
	if o.Policy <= cpus.Exclusive {
		if set, granted := r.Exclusive(w.ID); granted || r.Refused(w.ID) {
			return set
		}
		if n, _ := Claimed(w); n > 0 {
			set := previousCPUs(r.had, r.snap, w, n)
			if !set.Empty() { // before, CPUs counted that it had to give up
				set = set.Intersect(r.begin).Intersect(RoomBefore(r.snap.Knobs, w.Cgroup, r.snap.Topology.All()))
			}
			if !set.Empty() {
				return set
			}
		}
		if chosenPolicy(&o) == cpus.Exclusive {
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

// refuse returns the reason why the node cannot follow the choice of a scheduler
// for own CPUs, or nil. If the workload keeps other CPUs, the reason also names
// the workloads that hold the chosen ones.
func (r *oracle) refuse(chosen cpus.Choice, c oracleClaim, had, free unit.CPUSet, spare int) *cpus.Reason {
	all := r.Map.All()
	switch {
	case chosen.Topology != 0 && chosen.Topology != r.Map.Hash():
		return &cpus.Reason{Code: cpus.ChoiceForTopology}
	case chosen.Policy != cpus.Exclusive:
		return &cpus.Reason{Code: cpus.ChoiceForPolicy, Policy: chosen.Policy}
	case chosen.CPUs.Len() != c.cpus:
		return &cpus.Reason{Code: cpus.ChoiceForNumber, CPUs: chosen.CPUs, Request: requestOf(&c.work, c.cpus)}
	case !all.Contains(chosen.CPUs):
		return &cpus.Reason{Code: cpus.ChoiceOffline, CPUs: chosen.CPUs.Minus(all)}
	case !r.pool.Contains(chosen.CPUs):
		return &cpus.Reason{Code: cpus.ChoiceReserved, CPUs: chosen.CPUs.Minus(r.pool)}
	}
	if closed := chosen.CPUs.Minus(RoomBefore(r.snap.Knobs, c.work.Cgroup, all)); !closed.Empty() {
		return &cpus.Reason{Code: cpus.ChoiceClosed, CPUs: closed}
	}
	taken, keeps := chosen.CPUs.Minus(free), !had.Empty() && had != chosen.CPUs
	var holders []string
	for i := range r.asked {
		other := &r.asked[i]
		if taken.Empty() && !keeps || other.work.ID == c.work.ID {
			continue
		}
		set, granted := r.Exclusive(other.work.ID)
		if !granted && !r.Refused(other.work.ID) {
			set = other.had.Intersect(r.begin).Intersect(RoomBefore(r.snap.Knobs, other.work.Cgroup, all)) // before, CPUs counted to which other work is bound
		}
		if keeps {
			taken = taken.Union(set.Intersect(chosen.CPUs))
		}
		if !set.Intersect(taken).Empty() {
			holders = append(holders, string(other.work.ID))
		}
	}
	switch {
	case len(holders) > 0 || !taken.Empty():
		return &cpus.Reason{Code: cpus.ChoiceTaken, CPUs: taken, Others: holders}
	case c.cpus > spare:
		return &cpus.Reason{Code: cpus.ChoiceLeavesTooFew, Open: r.free.Len() - c.cpus, Stay: r.least}
	}
	return nil
}

// lacks returns the reason why too few CPUs are free for a claim for own CPUs.
// The code is Fits if there are enough. spare is the number of CPUs that an old
// claim may get, and more the number for this claim.
func (r *oracle) lacks(c oracleClaim, free unit.CPUSet, spare, more int) cpus.Reason {
	open := r.free.Len()
	switch {
	case c.cpus <= more && free.Len() < c.cpus:
		return cpus.Reason{Code: cpus.ClosedToCgroup, Given: free.Len(), Open: open}
	case c.cpus <= more:
		return cpus.Reason{}
	case open == 0:
		return cpus.Reason{Code: cpus.NoneOpen}
	case c.cpus <= spare || r.counted > r.least && more < spare:
		return cpus.Reason{Code: cpus.ForServices, Given: more, Open: open, Stay: r.counted}
	}
	return cpus.Reason{Code: cpus.MustStay, Given: more, Open: open, Stay: r.least}
}
