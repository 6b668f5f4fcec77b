package hold

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/shortage"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sharedBefore lists the seats and pools of the last tick, and the workloads
// that held them. If a workload held none, its entry is the choice of a
// scheduler, if there is one.
func (r *round) sharedBefore() (all []cpus.Allocation, sharers []shortage.Sharer) {
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
		all = append(all, h)
		if s, shares := shortage.SharerOf(string(w.ID), h); shares {
			sharers = append(sharers, s)
		}
	}
	return all, sharers
}

// share grants seats and pools after all own CPUs. Workloads that already had
// seats or a pool come first. Those with a scheduler's choice follow, and then
// the others by name.
func (r *round) share() {
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
		case chosenPolicy(w.Overrides.CPUs) != 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(asked, func(a, b node.Workload) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(string(a.ID), string(b.ID)))
	})
	var holds []cpus.Allocation
	for _, w := range asked {
		if _, shown := r.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}]; !shown {
			r.note(w.ID, cpus.Note{Policy: w.Overrides.CPUs.Policy, Asked: w.Overrides.CPUs.CPUs, Reason: &cpus.Reason{Code: cpus.NoCPUSet}})
			continue
		}
		h, n := r.seat(w, holds)
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
func (r *round) seat(w node.Workload, holds []cpus.Allocation) (cpus.Allocation, cpus.Note) {
	o := w.Overrides.CPUs
	open := r.free.Intersect(RoomBefore(r.snap.Knobs, w.Cgroup, r.snap.Topology.All()))
	seats := r.Map.Seats(r.Map.All().Minus(open), 0, slices.Concat(holds, r.apartFrom(w)))
	var h cpus.Allocation
	var no *cpus.Reason
	possible, lost := false, false
	if chosenPolicy(o) != 0 {
		h, no = r.chosenHome(o)
		possible = no == nil
	}
	if before, had := r.had.Shared(w.ID); had && before.Policy == o.Policy {
		before.CPU, before.Exclusive = o.CPU, o.Exclusive
		if set, moved := r.Map.Reseat(seats, before, o.CPUs); !set.Empty() {
			before.CPUs = set
			if !possible || o.Chosen.Domain != before.Domain {
				return before, cpus.Note{By: cpus.ByNode, Moved: moved, Choice: choiceOf(w, no)}
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
		why := numbersOf(shortage.Node{Map: r.Map, Seats: seats, Sharers: r.sharers()}, o.Request)
		return cpus.Allocation{}, cpus.Note{Reason: &why, Choice: no}
	}
	if lost {
		return offer.Allocation(o.Request), cpus.Note{By: cpus.ByNode, Choice: &cpus.Reason{Code: cpus.DomainLost}}
	}
	return offer.Allocation(o.Request), cpus.Note{By: cpus.ByNode, Choice: choiceOf(w, no)}
}

// sharers lists the workloads that have seats or pools so far.
func (r *round) sharers() []shortage.Sharer {
	var all []shortage.Sharer
	for id, h := range r.Allocations {
		if s, shares := shortage.SharerOf(string(id), h); shares {
			all = append(all, s)
		}
	}
	return all
}

// chosenHome returns the seats or the pool that a scheduler chose, or the reason
// why the node cannot follow this choice.
func (r *round) chosenHome(o node.CPUOverride) (cpus.Allocation, *cpus.Reason) {
	c, none := o.Chosen, cpus.Allocation{}
	switch {
	case c == nil:
		return none, &cpus.Reason{Code: cpus.NoChoice}
	case c.Policy != o.Policy:
		return none, &cpus.Reason{Code: cpus.ChoiceForPolicy, Policy: c.Policy}
	case c.Policy == cpus.Shared && c.CPUs.Len() != o.CPUs:
		return none, &cpus.Reason{Code: cpus.ChoiceForNumber, CPUs: c.CPUs, Request: o.Request}
	case c.Topology != 0 && c.Topology != r.Map.Hash():
		return none, &cpus.Reason{Code: cpus.ChoiceForTopology}
	case c.Domain.Empty():
		return none, &cpus.Reason{Code: cpus.ChoiceWithoutDomain}
	case !r.Map.All().Contains(c.Domain):
		return none, &cpus.Reason{Code: cpus.ChoiceOffline, CPUs: c.Domain.Minus(r.Map.All())}
	}
	return c.Allocation(o.Request), nil
}

// Containers returns the CPUs of each container of a workload. It returns nil
// if the containers have no CPUs of their own.
func (g Grants) Containers(w node.Workload) map[string]unit.CPUSet {
	o := w.Overrides.CPUs
	set, bound := g.Set(w.ID)
	if !bound || len(o.Containers) < 2 || set.Len() != o.CPUs {
		return nil
	}
	sizes := make([]int, len(o.Containers))
	for i, c := range o.Containers {
		sizes[i] = c.CPUs
	}
	parts := make(map[string]unit.CPUSet, len(sizes))
	for i, part := range g.Map.Cut(set, sizes) {
		if !part.Empty() {
			parts[o.Containers[i].Name] = part
		}
	}
	return parts
}
