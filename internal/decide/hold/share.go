package hold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sharedBefore lists the seats and pools that workloads held in the last tick.
// For a workload that held none, it lists the choice of a scheduler, if there
// is one.
func (r *round) sharedBefore() []pick.Hold {
	var all []pick.Hold
	for i := range r.snap.Workloads {
		w := &r.snap.Workloads[i]
		o := &w.Overrides.CPUs
		if pick.Grade(o.Grade) <= pick.Own || !Demands(w) {
			continue
		}
		if h, held := r.had.Shared[w.ID]; held {
			all = append(all, h)
		} else if h, why := r.chosenHome(*o); why == "" {
			all = append(all, h)
		}
	}
	return all
}

// share grants seats and pools, after all own CPUs. Workloads that had seats or
// a pool come first, then those for which a scheduler chose, and then the
// others by name.
func (r *round) share() {
	var asked []node.Workload
	for i := range r.snap.Workloads {
		w := &r.snap.Workloads[i]
		if Demands(w) && pick.Grade(w.Overrides.CPUs.Grade) > pick.Own {
			asked = append(asked, *w)
		}
	}
	rank := func(w node.Workload) int {
		switch _, held := r.had.Shared[w.ID]; {
		case held:
			return 0
		case chosenGrade(w.Overrides.CPUs) != 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(asked, func(a, b node.Workload) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(string(a.ID), string(b.ID)))
	})
	var holds []pick.Hold
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

// seat chooses the seats or the pool of one workload. holds are the seats and
// pools of earlier workloads. If the workload gets nothing, the Hold is empty.
func (r *round) seat(w node.Workload, holds []pick.Hold) (pick.Hold, By, string) {
	o := w.Overrides.CPUs
	open := r.free.Intersect(RoomBefore(r.snap.Knobs, w.Cgroup, r.snap.Topology.All()))
	seats := r.Map.Seats(r.Map.All().Minus(open), 0, slices.Concat(holds, r.apartFrom(w)))
	why := ""
	h, had := r.had.Shared[w.ID]
	if had && h.Grade == pick.Grade(o.Grade) {
		h.Request, h.Apart = o.Request, pick.Separation(o.Apart)
		if set, moved := r.Map.Reseat(seats, h, o.CPUs); !set.Empty() {
			h.CPUs = set
			return h, r.authorOf(o, h), describeShared(w, h, r.Map, moved)
		}
		why = "; its home has no open CPU any more"
	} else if chosenGrade(o) != 0 {
		var no string
		if h, no = r.chosenHome(o); no == "" {
			set, moved := r.Map.Reseat(seats, h, o.CPUs)
			if !set.Empty() {
				h.CPUs = set
				return h, ByScheduler, describeShared(w, h, r.Map, moved) + ", as its scheduler chose"
			}
			no = "has no open CPU"
		}
		why = "; its scheduler's choice " + no
	}
	c := pick.Claim{
		Grade: pick.Grade(o.Grade), CPUs: o.CPUs, Request: o.Request, Within: pick.Level(o.Within), Apart: pick.Separation(o.Apart),
	}
	offer, no := r.Map.Fit(seats, c)
	if no != pick.Fits {
		return pick.Hold{}, ByNode, fmt.Sprintf("%s demands CPUs to share, but %s: it shares all open CPUs%s", w.ID, no, why)
	}
	h = c.Hold(offer)
	return h, ByNode, describeShared(w, h, r.Map, false) + why
}

// chosenHome returns the seats or the pool that a scheduler chose, or the
// reason why the node cannot follow this choice.
func (r *round) chosenHome(o node.CPUOverride) (pick.Hold, string) {
	c := o.Chosen
	switch {
	case c == nil:
		return pick.Hold{}, "is not what it demands"
	case c.Grade != o.Grade || pick.Grade(c.Grade) == pick.Seated && c.CPUs.Len() != o.CPUs:
		return pick.Hold{}, "is not what it demands"
	case c.Topology != "" && c.Topology != r.Map.Hash().String():
		return pick.Hold{}, "is for another topology"
	case c.Home.Empty() || !r.Map.All().Contains(c.Home):
		return pick.Hold{}, "has CPUs that are not online"
	}
	return pick.Hold{Grade: pick.Grade(c.Grade), CPUs: c.CPUs, Home: c.Home, Request: o.Request, Apart: pick.Separation(o.Apart)}, ""
}

func (r *round) authorOf(o node.CPUOverride, h pick.Hold) By {
	if chosenGrade(o) == uint8(h.Grade) && o.Chosen.Home == h.Home {
		return ByScheduler
	}
	return ByNode
}

// describeShared says, for the reason of a want, which seats or which pool a
// workload has.
func describeShared(w node.Workload, h pick.Hold, m *pick.Map, moved bool) string {
	place := m.LevelOf(h.Home).One()
	if h.Grade == pick.Pooled {
		return fmt.Sprintf("%s shares the open CPUs of %s", w.ID, place)
	}
	text := fmt.Sprintf("%s has seats on %s of %s", w.ID, facts.CountCPUs(h.CPUs.Len()), place)
	if moved {
		text += ", moved from CPUs that others own now"
	}
	return text
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
