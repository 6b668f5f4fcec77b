package hold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A town is a machine with work of all kinds.
type town struct {
	rnd      *rand.Rand
	snap     node.Snapshot
	had      Held
	reserved unit.CPUSet
	keep     unit.Percent
	missing  map[node.WorkloadID]bool // the cpuset of the workload is missing now
}

// some returns a random set of the CPUs, each with a chance of 1 in n not in it.
func (n *town) some(in int) unit.CPUSet {
	var set unit.CPUSet
	for c := range n.snap.Topology.All().All() {
		if n.rnd.IntN(in) > 0 {
			set.Add(c)
		}
	}
	return set
}

// arrive adds a workload.
func (n *town) arrive(i int) {
	rnd, online := n.rnd, len(n.snap.Topology.CPUs)
	w := node.Workload{ID: node.WorkloadID(fmt.Sprintf("%c%d", 'a'+rnd.IntN(26), i)), Class: []node.Class{node.LSE, node.LSR, node.LS}[rnd.IntN(3)], Priority: rnd.IntN(3)}
	w.Cgroup = node.CgroupPath("pods/" + string(w.ID))
	o := &w.Overrides.CPUs
	switch rnd.IntN(8) {
	case 0: // a service, or a claim by its request
		w.CPURequest = node.Some(unit.MilliCPU(rnd.IntN(900)))
	case 1:
		w.CPURequest = node.Some(unit.CPUs(1 + rnd.IntN(3)))
	default:
		o.PodRequest = anyDemand(rnd, online)
		o.Fewest = o.Policy == cpus.Exclusive && rnd.IntN(5) == 0
		w.CPURequest = node.Some(max(o.CPU, unit.CPUs(o.CPUs)))
	}
	if rnd.IntN(2) == 0 {
		o.Pod = string(w.ID)
	}
	if o.Policy != 0 && rnd.IntN(3) > 0 {
		n.choose(&w)
	}
	knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
	n.snap.Knobs.Now[knob] = node.CPUs{}
	if rnd.IntN(5) == 0 {
		n.snap.Knobs.Now[knob] = node.CPUs{Set: n.some(3)}
	}
	n.snap.Workloads = append(n.snap.Workloads, w)
}

// choose gives a workload the choice of a scheduler that knows some of the other
// work, or a choice that is wrong.
func (n *town) choose(w *node.Workload) {
	o := &w.Overrides.CPUs
	all := map[place.UID]cpus.Allocation{}
	for _, id := range slices.Sorted(maps.Keys(n.had.Allocations)) {
		if n.rnd.IntN(5) > 0 {
			all[place.UID(id)] = n.had.Allocations[id]
		}
	}
	m := pick.Compile(n.snap.Topology)
	ledger := place.NewNode(m, n.reserved, 1, all)
	offer, why := ledger.Resize(o.Request, unit.CPUSet{})
	if why != cpus.Fits {
		return
	}
	c := place.ContractOf(m, o.PodRequest, offer).Choice
	switch n.rnd.IntN(12) {
	case 0:
		c.Policy = cpus.Policy(1 + n.rnd.IntN(3))
	case 1:
		c.CPUs = n.some(2)
	case 2:
		c.Domain = n.some(2)
	case 3:
		c.Topology++
	case 4:
		c.Topology, c.CPUs = 0, c.CPUs.With(500)
	}
	o.Chosen = &c
}

// change makes the changes before one tick.
func (n *town) change(i int) {
	rnd := n.rnd
	for range rnd.IntN(4) {
		n.arrive(i)
		i += 1000
	}
	for range rnd.IntN(3) + len(n.snap.Workloads)/3 {
		if len(n.snap.Workloads) == 0 {
			break
		}
		at := rnd.IntN(len(n.snap.Workloads))
		w := &n.snap.Workloads[at]
		knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
		switch rnd.IntN(6) {
		case 0, 1:
			delete(n.snap.Knobs.Now, knob)
			delete(n.snap.Knobs.Before, knob)
			n.snap.Workloads = slices.Delete(n.snap.Workloads, at, at+1)
		case 2:
			w.Overrides.CPUs.CPUs = 1 + rnd.IntN(w.Overrides.CPUs.CPUs+2)
		case 3:
			w.Overrides.CPUs.Exclusive = cpus.ExclusivePolicy(rnd.IntN(3))
		case 4:
			n.missing[w.ID] = !n.missing[w.ID]
		case 5:
			w.Overrides.CPUs.CPU = unit.MilliCPU(rnd.IntN(2000))
		}
	}
	if rnd.IntN(6) == 0 {
		n.reserved = n.snap.Topology.All().Minus(n.some(4))
	}
	if rnd.IntN(20) == 0 {
		n.had = Held{} // the state is lost
	}
}

// TestALedgerDecidesAsBefore runs random histories of work of all kinds, and
// decides each tick twice: with the ledger of the node, and by the code that had
// none. The CPUs of all workloads, the open CPUs and all reasons must be equal.
func TestALedgerDecidesAsBefore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(93, 94))
	seen := map[cpus.Code]int{}
	for try := range 250 {
		n := &town{
			rnd: rnd, keep: unit.Percent(rnd.IntN(40)), missing: map[node.WorkloadID]bool{},
			snap: node.Snapshot{
				Topology: machine(1+rnd.IntN(2), 1+rnd.IntN(3), 1+rnd.IntN(4), 1+rnd.IntN(2)),
				Knobs:    node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}},
			},
		}
		for i := range 25 {
			n.change(i)
			s := n.snap
			s.Knobs.Now = map[node.Knob]node.Value{}
			for _, w := range s.Workloads {
				if knob := (node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}); !n.missing[w.ID] {
					s.Knobs.Now[knob] = n.snap.Knobs.Now[knob]
				}
			}
			nodeCPUs := facts.NodeCPUs{ReservedCPUs: n.reserved}
			g, want := Decide(nodeCPUs, n.keep, n.had, s), decideAsBefore(nodeCPUs, n.keep, n.had, s)
			want.Pods = g.Pods // the code before knew no UIDs
			if diff := gocmp.Diff(want.Held, g.Held, gocmp.AllowUnexported(unit.CPUSet{})); diff != "" || g.Open != want.Open {
				t.Fatalf("try %d, step %d: open are %v, before %v (-before +now):\n%s\nreserved %v, had %+v", try, i, g.Open, want.Open, diff, n.reserved, n.had.Allocations)
			}
			n.had = g.Held
			for _, w := range s.Workloads {
				note := g.Notes[w.ID]
				seen[note.Code()]++
				knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
				if set, holds := g.Set(w.ID); holds {
					if _, touched := n.snap.Knobs.Before[knob]; !touched {
						n.snap.Knobs.Before[knob] = n.snap.Knobs.Now[knob]
					}
					n.snap.Knobs.Now[knob] = node.CPUs{Set: set}
				}
			}
		}
	}
	if len(seen) < 25 {
		t.Errorf("only the codes %v", seen)
	}
}
