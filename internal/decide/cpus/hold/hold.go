// Package hold decides which CPUs the workloads of a node hold: own CPUs, seats
// that others share, or a pool. It follows the choice of a scheduler. If there
// is no choice, or the node cannot follow it, hold chooses by the same
// functions as the scheduler.
package hold

import (
	"fmt"
	"maps"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Grants are the CPUs that workloads hold on a topology.
type Grants struct {
	Held
	// Map is the topology. It is nil if no workload demands CPUs.
	Map *pick.Map
	// Open are the shared CPUs that belong to no workload, and to
	// which no workload is bound.
	Open unit.CPUSet
}

// Held are the CPUs that workloads hold. Own CPUs are exclusive: no other LS
// work that Tenon manages runs on them. BE never runs on the own CPUs of LSE.
// BE runs on the own CPUs of LSR only if Tenon lends them.
type Held struct {
	// Allocations has the CPUs of each workload that holds some. It is nil if no
	// workload demands CPUs.
	Allocations map[node.WorkloadID]cpus.Allocation `json:"allocations,omitempty"`
	// Pods has the UID of each pod that holds CPUs, because two pods may have one
	// name, one after the other or both at once.
	Pods map[node.WorkloadID]string `json:"pods,omitempty"`
	// Notes has a note on each workload that demands CPUs. Decide does not read it.
	Notes map[node.WorkloadID]cpus.Note `json:"notes,omitempty"`
}

// follow returns what the workloads of a snapshot held before. It finds a pod by its
// UID. The ID of a pod's workload is the pod's name, and also has the UID while there
// is a second pod of that name. So the ID changes when the second one comes or goes,
// and a new pod may have the ID of one that has ended.
func (h Held) follow(all []node.Workload) Held {
	if len(h.Pods) == 0 {
		return h
	}
	ids := make(map[string]node.WorkloadID, len(h.Pods)) // by UID
	for id, uid := range h.Pods {
		ids[uid] = id
	}
	now := Held{Allocations: make(map[node.WorkloadID]cpus.Allocation, len(h.Allocations))}
	for i := range all {
		id := all[i].ID
		if uid := all[i].Overrides.CPUs.Pod; uid != "" && h.Pods[id] != uid {
			if had, known := ids[uid]; known {
				id = had
			} else if h.Pods[id] != "" { // the one with this ID was another pod
				continue
			}
		}
		if a, held := h.Allocations[id]; held {
			now.Allocations[all[i].ID] = a
		}
	}
	return now
}

// Exclusive returns the own CPUs of a workload. It returns false if the workload
// has none.
func (g Held) Exclusive(id node.WorkloadID) (unit.CPUSet, bool) {
	a := g.Allocations[id]
	return a.CPUs, a.Policy == cpus.Exclusive
}

// Shared returns the seats or the pool of a workload. It returns false if the
// workload has neither.
func (g Held) Shared(id node.WorkloadID) (cpus.Allocation, bool) {
	a := g.Allocations[id]
	return a, a.Policy > cpus.Exclusive
}

// Set returns the CPUs that a workload holds, own or shared. It returns false
// if the workload holds none.
func (g Held) Set(id node.WorkloadID) (unit.CPUSet, bool) {
	a, held := g.Allocations[id]
	return a.CPUs, held
}

// Home returns the CPUs of a workload, as Set does, without those that its pool
// has only while its load is high.
func (g Held) Home(id node.WorkloadID) (unit.CPUSet, bool) {
	if a := g.Allocations[id]; a.Policy == cpus.Pool {
		return a.Domain, true
	}
	return g.Set(id)
}

// Text returns the note on a workload as a sentence, or "" if there is none.
func (g Held) Text(id node.WorkloadID) string {
	n, noted := g.Notes[id]
	if !noted {
		return ""
	}
	return fmt.Sprintf("%s %s", id, n.Text())
}

// Refused reports whether a workload demands CPUs and holds none.
func (g Held) Refused(id node.WorkloadID) bool {
	n := g.Notes[id]
	return n.Refused()
}

// note keeps the note on a workload.
func (g *Held) note(id node.WorkloadID, n cpus.Note) {
	if g.Notes == nil {
		g.Notes = map[node.WorkloadID]cpus.Note{}
	}
	g.Notes[id] = n
}

// Decide grants CPUs. had has the CPUs of the last tick. A workload keeps its CPUs
// while it demands the same number, so a workload that is new or grows never moves
// another.
//
// Workloads that demand no more CPUs than they have come first: they keep their
// CPUs, or the best of them. Workloads that demand more follow, and new ones
// come last. In each group, those with a scheduler's choice come first. Among
// equals, priority, class (LSE before LSR) and name decide. If too few CPUs are
// left for a workload, it is treated as LS. Seats and pools follow after all own
// CPUs.
//
// A grant always leaves enough CPUs for the system and for BE. A new grant also
// leaves as many CPUs as the services without exclusive CPUs request. This does
// not apply to the choices of a scheduler, which knows these requests.
func Decide(shared facts.NodeCPUs, keep unit.Percent, had Held, s node.Snapshot) Grants {
	if !facts.AnyOf(s.Workloads, Demands) {
		return Grants{}
	}
	divided := shared.Counted(s)
	r := round{
		Grants: Grants{Held: Held{Allocations: map[node.WorkloadID]cpus.Allocation{}}, Map: pick.Compile(s.Topology)},
		snap:   s, had: had.follow(s.Workloads), all: s.Topology.All(), divided: divided, least: Keep(keep, divided), counted: countedOn(s),
	}
	bound := r.claims()
	r.start(bound)
	r.divide()
	r.share(bound)
	r.Open = r.free
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if _, holds := r.Allocations[w.ID]; holds && w.Overrides.CPUs.Pod != "" {
			if r.Pods == nil {
				r.Pods = map[node.WorkloadID]string{}
			}
			r.Pods[w.ID] = w.Overrides.CPUs.Pod
		}
	}
	return r.Grants
}

// A round holds the input and the result of one call of Decide.
type round struct {
	Grants
	snap  node.Snapshot
	had   Held
	asked []claim // all claims for own CPUs, in their order
	// all are the CPUs of the node, and divided those that workloads may get. free are
	// those of them that no workload owns so far.
	all, divided, free unit.CPUSet
	// ledger says what workloads have so far. Before its turn, a workload with
	// shared CPUs has what it had in the last tick, or what its scheduler chose.
	// One that must stay apart from others marks its cores or NUMA nodes.
	ledger place.Node
	// pending are grants that the ledger lacks so far: most ticks only repeat the
	// grants of the last one, and need no ledger for this.
	pending []node.WorkloadID
	least   int // number of CPUs that stay free
	counted int // number of CPUs that services without own CPUs request
}

// start starts the ledger. off are the divided CPUs that no workload gets.
func (r *round) start(off unit.CPUSet) {
	all := maps.Clone(r.Allocations)
	for i := range r.snap.Workloads {
		if w := &r.snap.Workloads[i]; Demands(w) && w.Overrides.CPUs.Policy > cpus.Exclusive {
			if a := r.before(w); a.Policy != 0 {
				all[w.ID] = a
			}
		}
	}
	r.restart(off, all)
	for i := range r.asked {
		c := &r.asked[i]
		c.had = c.had.Intersect(r.free).Intersect(c.room)
		mark := cpus.Allocation{CPUs: c.had, Exclusive: c.work.Overrides.CPUs.Exclusive}
		if mark.CPUs.Empty() && chosenPolicy(&c.work.Overrides.CPUs) == cpus.Exclusive {
			mark.CPUs = c.work.Overrides.CPUs.Chosen.CPUs
		}
		if mark.Exclusive != cpus.NotExclusive {
			r.put(c.work.ID, mark)
		}
	}
}

func (r *round) restart(off unit.CPUSet, all map[node.WorkloadID]cpus.Allocation) {
	r.ledger = place.NewNode(r.Map, r.all.Minus(r.divided).Union(off), 0, all)
	r.free, r.pending = r.ledger.Open(), nil
}

// take removes from the ledger what a workload has before its turn.
func (r *round) take(id node.WorkloadID) {
	if r.ledger.Has(place.UID(id)) {
		freed := r.ledger.Open()
		r.ledger = r.ledger.Without(place.UID(id))
		r.free = r.free.Union(r.ledger.Open().Minus(freed))
	}
}

// put says in the ledger what a workload has before its turn.
func (r *round) put(id node.WorkloadID, a cpus.Allocation) {
	r.take(id)
	r.ledger = r.ledger.With(place.UID(id), a)
	if a.Policy == cpus.Exclusive {
		r.free = r.free.Minus(a.CPUs)
	}
}

// openTo returns the ledger for a workload that may use the CPUs of a room.
func (r *round) openTo(room unit.CPUSet) place.Node {
	for _, id := range r.pending {
		r.ledger = r.ledger.With(place.UID(id), r.Allocations[id])
	}
	r.pending = nil
	return r.ledger.Close(r.all.Minus(room))
}

// grant gives CPUs to a workload.
func (r *round) grant(id node.WorkloadID, a cpus.Allocation, n cpus.Note) {
	n.Has = a.CPUs.Len()
	r.Allocations[id] = a
	r.note(id, n)
	r.pending = append(r.pending, id)
	if a.Policy == cpus.Exclusive {
		r.free = r.free.Minus(a.CPUs)
	}
}

// roomOf returns the CPUs that the cgroup of a workload could use before Tenon.
func (r *round) roomOf(w *node.Workload) unit.CPUSet {
	return RoomBefore(r.snap.Knobs, w.Cgroup, r.all)
}

// Demands reports whether a workload demands CPUs, own or shared.
func Demands(w *node.Workload) bool {
	return w.Class == node.LSE || w.Class == node.LSR || w.Class.Sensitive() && w.Overrides.CPUs.Policy != 0
}

// Claims reports whether a workload demands own CPUs.
func Claims(w *node.Workload) bool {
	n, _ := Claimed(w)
	return n > 0 && Demands(w) && w.Overrides.CPUs.Policy <= cpus.Exclusive
}

// Claimed returns the number of own CPUs that a workload demands. If the number
// is 0, it also returns the reason.
func Claimed(w *node.Workload) (int, cpus.Reason) {
	if o := &w.Overrides.CPUs; o.Policy == cpus.Exclusive && o.CPUs > 0 {
		return o.CPUs, cpus.Reason{}
	}
	amount, asked := w.CPURequest.Value()
	if !asked {
		amount, asked = w.CPULimit.Value()
	}
	switch {
	case !asked:
		return 0, cpus.Reason{Code: cpus.NoNumber}
	case amount <= 0 || amount%unit.CPUs(1) != 0:
		return 0, cpus.Reason{Code: cpus.FractionalCPU, CPU: amount}
	}
	return int(amount / unit.CPUs(1)), cpus.Reason{}
}

// previousCPUs returns the exclusive CPUs that a workload has now. They come
// from the last tick (had). If that state was lost, they come from the knob
// that holds the cpuset of the workload. The knob has fewer than n CPUs if the
// workload has grown since. The cpuset of a workload that was treated as LS
// does not count. Three signs show this treatment: the set overlaps with the
// set of another LS workload; it has more than n CPUs; or it has fewer, and
// leaves no CPU open to others. Exclusive CPUs always leave one open. An
// isolated CPU is not open, because work without own CPUs does not get it.
func previousCPUs(had Held, s node.Snapshot, w *node.Workload, n int) unit.CPUSet {
	if had.Allocations != nil {
		own, _ := had.Exclusive(w.ID)
		return own
	}
	written := func(w *node.Workload) unit.CPUSet {
		knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
		now, _ := s.Knobs.Now[knob].(node.CPUs)
		if _, touched := s.Knobs.Before[knob]; !touched {
			return unit.CPUSet{}
		}
		return now.Set
	}
	set := written(w)
	if set.Len() > n {
		return unit.CPUSet{}
	}
	rest := RoomBefore(s.Knobs, w.Cgroup, s.Topology.All()).Minus(s.Topology.Isolated)
	for i := range s.Workloads {
		other := &s.Workloads[i]
		if other.ID == w.ID || !other.Class.Sensitive() {
			continue
		}
		theirs := written(other)
		if !theirs.Intersect(set).Empty() {
			return unit.CPUSet{}
		}
		rest = rest.Minus(theirs)
	}
	if set.Len() < n && set.Contains(rest) {
		return unit.CPUSet{}
	}
	return set
}

// chosenPolicy returns the policy that a scheduler chose, or 0 if none chose.
func chosenPolicy(o *node.CPUOverride) cpus.Policy {
	if o.Chosen == nil {
		return 0
	}
	return o.Chosen.Policy
}

// Keep returns the number of CPUs that must stay shared: the percentage keep of
// those that are divided, but at least one CPU. They stay shared even without BE work, so
// that later BE work takes no CPUs from services.
func Keep(keep unit.Percent, divided unit.CPUSet) int {
	share := unit.CPUs(divided.Len()).Percent(keep)
	return max(1, int((share+999)/unit.CPUs(1)))
}

// countedOn sums the CPU requests of LS work without exclusive CPUs, in CPUs.
func countedOn(s node.Snapshot) int {
	var sum unit.MilliCPU
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.Class.Sensitive() && !Claims(w) {
			sum += w.CPURequest.Or(0)
		}
	}
	return int((sum + 999) / unit.CPUs(1))
}

// exclusive returns the allocation of own CPUs to a workload.
func exclusive(w *node.Workload, set unit.CPUSet) cpus.Allocation {
	return cpus.Allocation{Policy: cpus.Exclusive, CPUs: set, Exclusive: w.Overrides.CPUs.Exclusive}
}

// RoomBefore returns the CPUs in the set all that a cgroup could use before
// Tenon, according to its own cpuset and the cpusets of its ancestors.
func RoomBefore(k node.Knobs, p node.CgroupPath, all unit.CPUSet) unit.CPUSet {
	for ; p != ""; p = p.Parent() {
		if own, _ := facts.Original(k, node.Knob{Cgroup: p, File: node.FileCPUs}).(node.CPUs); !own.Set.Empty() {
			all = all.Intersect(own.Set)
		}
	}
	return all
}

// BoundTo returns the CPUs to which a workload was bound before Tenon. That is
// the cpuset of its cgroup, or of its nearest ancestor that holds only work of
// its class. A set that contains all of cpus does not count as bound.
func BoundTo(k node.Knobs, w *node.Workload, cpus unit.CPUSet) (unit.CPUSet, bool) {
	for p := w.Cgroup; ; p = p.Parent() {
		v, _ := facts.Original(k, node.Knob{Cgroup: p, File: node.FileCPUs}).(node.CPUs)
		if !v.Set.Empty() {
			set := v.Set.Intersect(cpus)
			return set, !set.Empty() && set != cpus
		}
		if p == w.ContentionRoot || w.ContentionRoot == "" || !w.ContentionRoot.Contains(p) {
			return unit.CPUSet{}, false
		}
	}
}
