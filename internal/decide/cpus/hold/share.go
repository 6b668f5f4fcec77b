package hold

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// before returns the seats or the pool that a workload had in the last tick, or
// else those that its scheduler chose. The Allocation is empty if there are none.
func (r *round) before(w *node.Workload) cpus.Allocation {
	o := &w.Overrides.CPUs
	a, held := r.had.Shared(w.ID)
	if !held {
		a, _ = r.chosenHome(o)
	}
	if a.Policy != 0 {
		a.CPU, a.Exclusive = o.CPU, o.Exclusive
	}
	return a
}

// share grants seats and pools after all own CPUs. Workloads that already had
// seats or a pool come first. Those with a scheduler's choice follow, and then
// the others by name.
func (r *round) share(off unit.CPUSet) {
	var asked []*node.Workload
	all := maps.Clone(r.Allocations)
	for i := range r.snap.Workloads {
		w := &r.snap.Workloads[i]
		if !Demands(w) || w.Overrides.CPUs.Policy <= cpus.Exclusive {
			continue
		}
		asked = append(asked, w)
		if a := r.before(w); a.Exclusive != cpus.NotExclusive { // until its turn, it only marks cores or NUMA nodes
			if a.Policy == cpus.Pool {
				a.CPUs = a.CPUs.Union(a.Domain)
			}
			all[w.ID] = cpus.Allocation{CPUs: a.CPUs, Exclusive: a.Exclusive}
		}
	}
	if asked == nil {
		return
	}
	r.restart(off, all)
	rank := func(w *node.Workload) int {
		switch _, held := r.had.Shared(w.ID); {
		case held:
			return 0
		case chosenPolicy(&w.Overrides.CPUs) != 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(asked, func(a, b *node.Workload) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(string(a.ID), string(b.ID)))
	})
	for _, w := range asked {
		r.take(w.ID)
		o := &w.Overrides.CPUs
		a, n := cpus.Allocation{}, cpus.Note{Reason: &cpus.Reason{Code: cpus.NoCPUSet}}
		_, shown := r.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}]
		if _, held := r.had.Shared(w.ID); shown || held {
			a, n = r.seat(w)
		}
		if !shown && !a.CPUs.Empty() { // while the knob cannot be read, the workload keeps its CPUs
			n.By, n.Choice, n.Reason = cpus.ByNode, nil, &cpus.Reason{Code: cpus.CPUSetMissing}
		}
		if n.Policy, n.Asked = o.Policy, o.CPUs; a.CPUs.Empty() {
			r.note(w.ID, n)
			continue
		}
		n.Level = r.Map.LevelOf(a.Domain)
		r.grant(w.ID, a, n)
	}
}

// seat chooses the seats or the pool of one workload. If the workload gets
// nothing, the Allocation is empty.
func (r *round) seat(w *node.Workload) (cpus.Allocation, cpus.Note) {
	o := &w.Overrides.CPUs
	ledger := r.openTo(r.roomOf(w))
	var h cpus.Allocation
	var no *cpus.Reason
	possible, lost := false, false
	if chosenPolicy(o) != 0 {
		h, no = r.chosenHome(o)
		possible = no == nil
	}
	if before, had := r.had.Shared(w.ID); had && before.Policy == o.Policy {
		before.CPU, before.Exclusive = o.CPU, o.Exclusive
		if set, moved := ledger.Reseat(before, o.CPUs); !set.Empty() {
			before.CPUs = set
			if !possible || o.Chosen.Domain != before.Domain {
				return before, cpus.Note{By: cpus.ByNode, Moved: moved, Choice: choiceOf(w, no)}
			}
			return before, cpus.Note{By: cpus.ByScheduler, Moved: moved}
		}
		lost = true
	} else if possible {
		if set, moved := ledger.Reseat(h, o.CPUs); !set.Empty() {
			h.CPUs = set
			return h, cpus.Note{By: cpus.ByScheduler, Moved: moved}
		}
		no = &cpus.Reason{Code: cpus.ChoiceFull}
	}
	offer, not := ledger.Resize(o.Request, unit.CPUSet{})
	if not != cpus.Fits {
		why := numbersOf(&ledger, o.Request)
		return cpus.Allocation{}, cpus.Note{Reason: &why, Choice: no}
	}
	if lost {
		return offer.Allocation(o.Request), cpus.Note{By: cpus.ByNode, Choice: &cpus.Reason{Code: cpus.DomainLost}}
	}
	return offer.Allocation(o.Request), cpus.Note{By: cpus.ByNode, Choice: choiceOf(w, no)}
}

// chosenHome returns the seats or the pool that a scheduler chose, or the reason
// why the node cannot follow this choice.
func (r *round) chosenHome(o *node.CPUOverride) (cpus.Allocation, *cpus.Reason) {
	if o.Chosen == nil {
		return cpus.Allocation{}, &cpus.Reason{Code: cpus.NoChoice}
	}
	if no := place.Check(r.Map, o.Chosen, o.Request); no != nil {
		return cpus.Allocation{}, no
	}
	return o.Chosen.Allocation(o.Request), nil
}

// Containers returns the CPUs of each container of a workload. It returns nil
// if the containers have no CPUs of their own.
func (g Grants) Containers(w node.Workload) map[string]unit.CPUSet {
	o := w.Overrides.CPUs
	set, bound := g.Set(w.ID)
	if !bound || len(o.Containers) < 2 || set.Len() != o.CPUs {
		return nil
	}
	parts := place.Divide(g.Map, set, o.Containers)
	maps.DeleteFunc(parts, func(_ string, part unit.CPUSet) bool { return part.Empty() })
	return parts
}
