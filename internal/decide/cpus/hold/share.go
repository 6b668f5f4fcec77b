package hold

import (
	"cmp"
	"fmt"
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
		h, held := r.had.Shared[w.ID]
		if !held {
			var no string
			if h, no = r.chosenHome(*o); no != "" {
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
		switch _, held := r.had.Shared[w.ID]; {
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
			r.Why[w.ID] = fmt.Sprintf("%s is in a cgroup without the cpuset controller: it shares all open CPUs", w.ID)
			continue
		}
		h, by, how := r.seat(w, holds)
		if h.CPUs.Empty() {
			r.Why[w.ID] = how
			continue
		}
		holds = append(holds, h)
		r.Shared[w.ID], r.By[w.ID], r.How[w.ID] = h, by, how
	}
}

// seat chooses the seats or the pool of one workload. holds has those of
// earlier workloads. If the workload gets nothing, the Hold is empty.
func (r *round) seat(w node.Workload, holds []cpus.Allocation) (cpus.Allocation, By, string) {
	o := w.Overrides.CPUs
	open := r.free.Intersect(RoomBefore(r.snap.Knobs, w.Cgroup, r.snap.Topology.All()))
	seats := r.Map.Seats(r.Map.All().Minus(open), 0, slices.Concat(holds, r.apartFrom(w)))
	var h cpus.Allocation
	no, possible, lost := "", false, false
	if chosenPolicy(o) != 0 {
		h, no = r.chosenHome(o)
		possible = no == ""
	}
	if before, had := r.had.Shared[w.ID]; had && before.Policy == o.Policy {
		before.CPU, before.Exclusive = o.CPU, o.Exclusive
		if set, moved := r.Map.Reseat(seats, before, o.CPUs); !set.Empty() {
			before.CPUs = set
			how := describeShared(w, before, r.Map, moved)
			if !possible || o.Chosen.Domain != before.Domain {
				return before, ByNode, how + author(w, no) + fewer(w, before, no)
			}
			return before, ByScheduler, how + ", as its scheduler chose" + fewer(w, before, no)
		}
		lost = true
	} else if possible {
		if set, moved := r.Map.Reseat(seats, h, o.CPUs); !set.Empty() {
			h.CPUs = set
			return h, ByScheduler, describeShared(w, h, r.Map, moved) + ", as its scheduler chose" + fewer(w, h, no)
		}
		no = "has no open CPU"
	}
	c := o.Request
	offer, not := r.Map.Fit(seats, c)
	if not != cpus.Fits {
		n := shortage.Node{Map: r.Map, Seats: seats, Sharers: r.sharers()}
		why := fmt.Sprintf("%s has no %s and shares all open CPUs: %s", w.ID, strings.TrimPrefix(nounOf(c.Policy), "a "), numbersOf(n, c))
		if no != "" {
			why += "; its scheduler's choice " + no
		}
		return cpus.Allocation{}, ByNode, why
	}
	h = offer.Allocation(c)
	how := describeShared(w, h, r.Map, false)
	if lost {
		return h, ByNode, how + nodeChose + "its home before has no open CPU any more"
	}
	return h, ByNode, how + author(w, no)
}

// sharers lists the workloads that have seats or pools so far.
func (r *round) sharers() []shortage.Sharer {
	var all []shortage.Sharer
	for id, h := range r.Shared {
		if s, shares := shortage.SharerOf(string(id), h); shares {
			all = append(all, s)
		}
	}
	return all
}

// chosenHome returns the seats or the pool that a scheduler chose, or the
// reason why the node cannot follow this choice.
func (r *round) chosenHome(o node.CPUOverride) (cpus.Allocation, string) {
	c := o.Chosen
	switch {
	case c == nil:
		return cpus.Allocation{}, "is missing"
	case c.Policy != o.Policy:
		return cpus.Allocation{}, "is for " + nounOf(c.Policy)
	case c.Policy == cpus.Shared && c.CPUs.Len() != o.CPUs:
		return cpus.Allocation{}, another(c.CPUs, o.CPUs)
	case c.Topology != 0 && c.Topology != r.Map.Hash():
		return cpus.Allocation{}, "is for another topology"
	case c.Domain.Empty():
		return cpus.Allocation{}, "names no CPUs to share"
	case !r.Map.All().Contains(c.Domain):
		return cpus.Allocation{}, fmt.Sprintf("has %s, not online", named(c.Domain.Minus(r.Map.All())))
	}
	return cpus.Allocation{Policy: c.Policy, CPUs: c.CPUs, Domain: c.Domain, CPU: o.CPU, Exclusive: o.Exclusive}, ""
}

// Set returns the CPUs that a workload holds, own or shared. It returns false
// if the workload holds none.
func (g Grants) Set(id node.WorkloadID) (unit.CPUSet, bool) {
	if set, own := g.Of[id]; own {
		return set, true
	}
	h, shared := g.Shared[id]
	return h.CPUs, shared
}

// Home returns the CPUs of a workload, as Set does, without those that its pool
// has only while its load is high.
func (g Grants) Home(id node.WorkloadID) (unit.CPUSet, bool) {
	if h, shared := g.Shared[id]; shared && h.Policy == cpus.Pool {
		return h.Domain, true
	}
	return g.Set(id)
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
