package hold

import (
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/shortage"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// spread returns a note on own CPUs that says how they are spread.
func spread(by cpus.By, o pick.Offer) cpus.Note {
	n := cpus.Note{By: by, Level: cpus.L3, Nodes: o.Nodes, Split: o.Split}
	if o.Caches > 1 {
		n.Level = cpus.NUMA
	}
	return n
}

// choiceOf says why the node chose the CPUs of a workload. no is the reason why
// it does not follow the choice of a scheduler. If the workload has such a choice
// but no is nil, the node could follow the choice only now. Work of one machine
// has no scheduler.
func choiceOf(w node.Workload, no *cpus.Reason) *cpus.Reason {
	o := w.Overrides.CPUs
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
func (r *round) refuse(chosen cpus.Choice, c claim, had, free unit.CPUSet, spare int) *cpus.Reason {
	all := r.Map.All()
	switch {
	case chosen.Topology != 0 && chosen.Topology != r.Map.Hash():
		return &cpus.Reason{Code: cpus.ChoiceForTopology}
	case chosen.Policy != cpus.Exclusive:
		return &cpus.Reason{Code: cpus.ChoiceForPolicy, Policy: chosen.Policy}
	case chosen.CPUs.Len() != c.cpus:
		return &cpus.Reason{Code: cpus.ChoiceForNumber, CPUs: chosen.CPUs, Request: requestOf(c.work, c.cpus)}
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
			set = other.had.Intersect(r.pool)
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
func (r *round) lacks(c claim, free unit.CPUSet, spare, more int) cpus.Reason {
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

// numbersOf says why a claim does not fit although enough CPUs are free. Only a
// claim for whole cores depends on the CPUs that the workload has.
func numbersOf(n shortage.Node, c cpus.Request) cpus.Reason {
	why := n.Reason(c)
	if why.Code == cpus.Fits {
		why.Code = cpus.NoWholeCores
	}
	return why
}
