package policy

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

// grants holds the exclusive CPUs of LSR and LSE workloads that request whole
// CPUs. No other LS work that Tenon manages runs there. BE work never runs on
// the CPUs of LSE, and runs on those of LSR only if they are lent.
type grants struct {
	of map[node.WorkloadID]unit.CPUSet
	m  *pick.Map // the topology; nil: no workload requests CPUs
	// how describes each grant. why is the reason why an LSR or LSE workload
	// has no grant.
	how, why map[node.WorkloadID]string
}

// A claim is the request of one workload for exclusive CPUs.
type claim struct {
	work node.Workload
	cpus int
	had  unit.CPUSet
}

// pin grants exclusive CPUs. A workload keeps its CPUs while it requests the
// same number, so a new workload never moves another. Among workloads without
// CPUs the order is: higher priority, then LSE before LSR, then name. A grant
// always leaves enough CPUs for the system and for BE. A new grant also leaves
// the CPUs that services without exclusive CPUs request. A workload for which
// too few CPUs are left is treated as LS.
func pin(shared facts.Pool, keep unit.Percent, had map[node.WorkloadID]unit.CPUSet, s node.Snapshot) grants {
	var g grants
	var asked []claim
	pool := shared.Counted(s)
	free := pool
	for _, w := range s.Workloads {
		if w.Class != node.LSE && w.Class != node.LSR {
			continue
		}
		if g.of == nil {
			g = grants{map[node.WorkloadID]unit.CPUSet{}, pick.Compile(s.Topology), map[node.WorkloadID]string{}, map[node.WorkloadID]string{}}
		}
		knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
		n, why := claimed(w)
		if _, shown := s.Knobs.Now[knob]; why == "" && !shown {
			why = "is in a cgroup without the cpuset controller"
			if set := had[w.ID].Intersect(pool); !set.Empty() { // it keeps them while the knob cannot be read
				g.of[w.ID], g.how[w.ID] = set, "it keeps the CPUs that it has"
				free = free.Minus(set)
				continue
			}
		}
		if why != "" {
			g.why[w.ID] = fmt.Sprintf("%s %s: it is treated as LS", w.ID, why)
			if set, bound := boundTo(s, w, pool); bound {
				g.why[w.ID] = fmt.Sprintf("%s %s: it keeps the CPUs to which it was bound", w.ID, why)
				free = free.Minus(set)
			}
			continue
		}
		asked = append(asked, claim{w, n, hadBy(had, s, w, n)})
	}
	slices.SortFunc(asked, claim.compare)
	least, counted := leastShared(keep, pool), countedOn(s)
	for _, cl := range asked {
		g.grant(s, cl, &free, least, counted)
	}
	return g
}

// claims reports whether a workload requests exclusive CPUs.
func claims(w node.Workload) bool {
	n, _ := claimed(w)
	return n > 0 && (w.Class == node.LSE || w.Class == node.LSR)
}

// claimed returns the number of CPUs that a workload requests, or the reason
// why it is 0.
func claimed(w node.Workload) (int, string) {
	amount, asked := w.CPURequest.Value()
	if !asked {
		amount, asked = w.CPULimit.Value()
	}
	switch {
	case !asked:
		return 0, "requests no number of CPUs"
	case amount <= 0 || amount%unit.CPUs(1) != 0:
		return 0, fmt.Sprintf("requests %v of CPU, which is not a whole number of CPUs", amount)
	}
	return int(amount / unit.CPUs(1)), ""
}

// hadBy returns the present exclusive CPUs of a workload. They are in the
// state; if the state was lost, they are derived from the knob. A workload that
// was treated as LS can have a set of the same size, but then other workloads
// share it.
func hadBy(had map[node.WorkloadID]unit.CPUSet, s node.Snapshot, w node.Workload, n int) unit.CPUSet {
	if had != nil {
		return had[w.ID]
	}
	written := func(w node.Workload) unit.CPUSet {
		knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
		now, _ := s.Knobs.Now[knob].(node.CPUs)
		if _, touched := s.Knobs.Before[knob]; !touched {
			return unit.CPUSet{}
		}
		return now.Set
	}
	set := written(w)
	if set.Len() != n {
		return unit.CPUSet{}
	}
	for _, other := range s.Workloads {
		if other.ID != w.ID && other.Class.Sensitive() && !written(other).Intersect(set).Empty() {
			return unit.CPUSet{}
		}
	}
	return set
}

// compare orders claims from first to last granted.
func (c claim) compare(o claim) int {
	if c.had.Empty() != o.had.Empty() {
		if o.had.Empty() {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(o.work.Priority, c.work.Priority),
		cmp.Compare(slices.Index(node.Classes, c.work.Class), slices.Index(node.Classes, o.work.Class)),
		strings.Compare(string(c.work.ID), string(o.work.ID)))
}

// leastShared returns the number of CPUs that must stay shared: one for the
// system, and the minimum of BE. The minimum counts even if there is no BE
// work, so that new BE work takes no CPUs from services.
func leastShared(keep unit.Percent, pool unit.CPUSet) int {
	share := unit.CPUs(pool.Len()).Percent(keep)
	return max(1, int((share+999)/unit.CPUs(1)))
}

// countedOn returns the number of CPUs that LS work without exclusive CPUs
// requests.
func countedOn(s node.Snapshot) int {
	var sum unit.MilliCPU
	for _, w := range s.Workloads {
		if w.Class.Sensitive() && !claims(w) {
			sum += w.CPURequest.Or(0)
		}
	}
	return int((sum + 999) / unit.CPUs(1))
}

// grant gives a workload CPUs from free. At least the number least is left. A
// new or larger claim also leaves the number counted.
func (g grants) grant(s node.Snapshot, c claim, free *unit.CPUSet, least, counted int) {
	id := c.work.ID
	room := roomBefore(s, c.work.Cgroup, s.Topology.All())
	had := c.had.Intersect(*free).Intersect(room)
	spare := free.Len() - least
	more := spare
	if c.cpus > had.Len() {
		more = free.Len() - max(least, counted)
	}
	if c.cpus <= more {
		seats := g.m.Seats(g.m.All().Minus(free.Intersect(room)), 0, nil)
		if o, why := g.m.Fit(seats, pick.Claim{Grade: pick.Own, CPUs: c.cpus, Have: had}); why == pick.Fits {
			g.of[id], g.how[id] = o.CPUs, describe(c.work, o)
			*free = free.Minus(o.CPUs)
			return
		}
	}
	if n := had.Len(); n > 0 && n <= spare { // the larger claim does not fit, so it keeps its CPUs
		g.of[id] = had
		g.how[id] = fmt.Sprintf("%s requests %s for exclusive use, but no more can be granted", id, facts.CountCPUs(c.cpus))
		*free = free.Minus(had)
		return
	}
	beside := ""
	if more < spare {
		beside = fmt.Sprintf(" beside the %d that other services request", counted)
	}
	g.why[id] = fmt.Sprintf("%s requests %s for exclusive use, but %s can be granted%s: it is treated as LS", id, facts.CountCPUs(c.cpus), atMost(free.Intersect(room).Len(), more), beside)
}

func atMost(free, spare int) string {
	switch n := max(min(free, spare), 0); n {
	case 0:
		return "none"
	default:
		return fmt.Sprint(n)
	}
}

// describe describes a grant for a reason.
func describe(w node.Workload, o pick.Offer) string {
	text := fmt.Sprintf("%s has %s for exclusive use", w.ID, facts.CountCPUs(o.CPUs.Len()))
	if o.Split > 0 {
		text += fmt.Sprintf(", %d beside others on a core", o.Split)
	}
	if o.Nodes > 1 {
		text += fmt.Sprintf(", on %d NUMA nodes", o.Nodes)
	}
	return text
}

// roomBefore returns the CPUs that a cgroup could use before Tenon, by its own
// cpuset and those of its ancestors.
func roomBefore(s node.Snapshot, p node.CgroupPath, all unit.CPUSet) unit.CPUSet {
	for ; p != ""; p = p.Parent() {
		if own, _ := facts.Original(s.Knobs, node.Knob{Cgroup: p, File: node.FileCPUs}).(node.CPUs); !own.Set.Empty() {
			all = all.Intersect(own.Set)
		}
	}
	return all
}
