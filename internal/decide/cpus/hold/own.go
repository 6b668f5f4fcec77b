package hold

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A claim is the demand of one workload for own CPUs.
type claim struct {
	work *node.Workload
	cpus int
	had  unit.CPUSet
	room unit.CPUSet // the CPUs that its cgroup could use before Tenon
}

// claims lists the claims in their order. It also grants the CPUs of workloads
// whose cpuset is missing now, and returns the CPUs to which workloads without a
// valid claim are bound.
func (r *round) claims() (bound unit.CPUSet) {
	for i := range r.snap.Workloads {
		w := &r.snap.Workloads[i]
		if !Demands(w) || w.Overrides.CPUs.Policy > cpus.Exclusive {
			continue
		}
		n, why := Claimed(w)
		if _, shown := r.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}]; why.Code == cpus.Fits && !shown {
			why.Code = cpus.NoCPUSet
			own, _ := r.had.Exclusive(w.ID)
			if set := own.Intersect(r.divided); !set.Empty() { // while the knob cannot be read, the workload keeps its CPUs
				r.Allocations[w.ID] = exclusive(w, set)
				r.note(w.ID, cpus.Note{By: cpus.ByNode, Policy: cpus.Exclusive, Asked: n, Has: set.Len(), Reason: &cpus.Reason{Code: cpus.CPUSetMissing}})
				continue
			}
		}
		if why.Code != cpus.Fits {
			set, is := BoundTo(r.snap.Knobs, w, r.divided)
			if is {
				bound = bound.Union(set)
			}
			r.note(w.ID, cpus.Note{Policy: cpus.Exclusive, Asked: n, Reason: &why, Bound: is})
			continue
		}
		r.asked = append(r.asked, claim{w, n, previousCPUs(r.had, r.snap, w, n), r.roomOf(w)})
	}
	slices.SortFunc(r.asked, claim.compare)
	return bound
}

// compare orders claims. The claim that must be granted first sorts first.
func (c claim) compare(o claim) int {
	if c.had.Empty() != o.had.Empty() {
		if o.had.Empty() {
			return -1
		}
		return 1
	}
	if a, b := chosenPolicy(&c.work.Overrides.CPUs), chosenPolicy(&o.work.Overrides.CPUs); (a == 0) != (b == 0) {
		return int(b) - int(a)
	}
	return cmp.Or(
		cmp.Compare(o.work.Priority, c.work.Priority),
		cmp.Compare(slices.Index(node.Classes, c.work.Class), slices.Index(node.Classes, o.work.Class)),
		strings.Compare(string(c.work.ID), string(o.work.ID)))
}

// divide grants the claims in their order, in two passes. The first pass grants
// claims that demand no more than the workload has, and keeps what the other
// workloads have. The second pass grants the other claims. So a workload that
// grows, or that is new, takes no CPU that another one keeps.
func (r *round) divide() {
	var later []*claim
	for i := range r.asked {
		c := &r.asked[i]
		had := c.had.Intersect(r.free)
		n, most := had.Len(), r.free.Len()-r.least
		if n > 0 && c.cpus <= min(n, most) {
			r.own(c)
			continue
		}
		if n > 0 && n <= most { // if not, too few CPUs are left to keep them
			r.put(c.work.ID, exclusive(c.work, had))
		}
		later = append(later, c)
	}
	for _, c := range later {
		r.own(c)
	}
}

// own gives some of the free CPUs to a workload. At least r.least CPUs stay free.
// After a claim that is new or has grown, at least r.counted CPUs must stay free,
// too. A scheduler's choice is exempt from this.
func (r *round) own(c *claim) {
	w, o := c.work, &c.work.Overrides.CPUs
	r.take(w.ID)
	open := r.free.Intersect(c.room)
	had := c.had.Intersect(open)
	spare := r.free.Len() - r.least
	note := cpus.Note{Policy: cpus.Exclusive, Asked: c.cpus}
	if chosenPolicy(o) != 0 {
		note.Choice = r.refuse(c, had, open, spare)
		if set := o.Chosen.CPUs; note.Choice == nil && (had.Empty() || had == set) {
			r.grant(w.ID, exclusive(w, set), spread(note, cpus.ByScheduler, r.Map.Judge(set)))
			return
		}
	}
	more := spare
	if c.cpus > had.Len() {
		more = r.free.Len() - max(r.least, r.counted)
	}
	want := requestOf(w, c.cpus)
	ledger := r.openTo(c.room)
	if c.cpus <= more {
		if offer, not := ledger.Resize(want, had); not == cpus.Fits {
			note.Choice = choiceOf(w, note.Choice)
			r.grant(w.ID, exclusive(w, offer.CPUs), spread(note, cpus.ByNode, offer))
			return
		}
	}
	lacks := r.lacks(c.cpus, open, spare, more)
	if lacks.Code == cpus.Fits {
		lacks = numbersOf(&ledger, want)
	}
	note.Reason = &lacks
	if n := had.Len(); n > 0 && n <= spare { // the larger claim does not fit, so it keeps its CPUs
		note.By, note.Choice = cpus.ByNode, nil
		r.grant(w.ID, exclusive(w, had), note)
		return
	}
	r.note(w.ID, note)
}

// requestOf returns the request of a workload for n own CPUs.
func requestOf(w *node.Workload, n int) cpus.Request {
	r := w.Overrides.CPUs.Request
	r.Policy, r.CPUs, r.CPU = cpus.Exclusive, n, 0
	return r
}

// spread adds to a note on own CPUs how they are spread.
func spread(n cpus.Note, by cpus.By, o pick.Offer) cpus.Note {
	n.By, n.Level, n.Nodes, n.Split = by, cpus.L3, o.Nodes, o.Split
	if o.Caches > 1 {
		n.Level = cpus.NUMA
	}
	return n
}

// choiceOf says why the node chose the CPUs of a workload. no is the reason why
// it does not follow the choice of a scheduler. If the workload has such a choice
// but no is nil, the node could follow the choice only now. Work of one machine
// has no scheduler.
func choiceOf(w *node.Workload, no *cpus.Reason) *cpus.Reason {
	o := &w.Overrides.CPUs
	switch {
	case no != nil:
		return no
	case chosenPolicy(o) != 0:
		return &cpus.Reason{Code: cpus.ChoiceNotPossible, CPUs: o.Chosen.CPUs}
	case o.Pod != "":
		return &cpus.Reason{Code: cpus.NoChoice}
	}
	return nil
}

// refuse returns the reason why the node cannot follow the choice of a scheduler
// for own CPUs, or nil. If the workload keeps other CPUs, the reason also names
// the workloads that hold the chosen ones.
func (r *round) refuse(c *claim, had, open unit.CPUSet, spare int) *cpus.Reason {
	chosen := c.work.Overrides.CPUs.Chosen
	if no := place.Check(r.Map, chosen, requestOf(c.work, c.cpus)); no != nil {
		return no
	}
	if !r.divided.Contains(chosen.CPUs) {
		return &cpus.Reason{Code: cpus.ChoiceReserved, CPUs: chosen.CPUs.Minus(r.divided)}
	}
	if closed := chosen.CPUs.Minus(c.room); !closed.Empty() {
		return &cpus.Reason{Code: cpus.ChoiceClosed, CPUs: closed}
	}
	taken, keeps := chosen.CPUs.Minus(open), !had.Empty() && had != chosen.CPUs
	var holders []string
	for i := range r.asked {
		other := &r.asked[i]
		if taken.Empty() && !keeps || other.work.ID == c.work.ID {
			continue
		}
		set, granted := r.Exclusive(other.work.ID)
		if !granted && !r.Refused(other.work.ID) {
			set = other.had
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
// The code is Fits if there are enough. open are the free CPUs that its cgroup may
// use. spare is the number of CPUs that an old claim may get, and more the number
// for this claim.
func (r *round) lacks(asked int, open unit.CPUSet, spare, more int) cpus.Reason {
	free := r.free.Len()
	switch {
	case asked <= more && open.Len() < asked:
		return cpus.Reason{Code: cpus.ClosedToCgroup, Given: open.Len(), Open: free}
	case asked <= more:
		return cpus.Reason{}
	case free == 0:
		return cpus.Reason{Code: cpus.NoneOpen}
	case asked <= spare || r.counted > r.least && more < spare:
		return cpus.Reason{Code: cpus.ForServices, Given: more, Open: free, Stay: r.counted}
	}
	return cpus.Reason{Code: cpus.MustStay, Given: more, Open: free, Stay: r.least}
}

// numbersOf says why a claim does not fit although enough CPUs are free. Only a
// claim for whole cores depends on the CPUs that the workload has.
func numbersOf(n *place.Node, c cpus.Request) cpus.Reason {
	why := n.Explain(c, func(id place.UID) string { return string(id) })
	if why.Code == cpus.Fits {
		why.Code = cpus.NoWholeCores
	}
	return why
}
