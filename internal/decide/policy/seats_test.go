package policy

import (
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestSeatsHoldTheirProperties runs random nodes whose work starts, ends and
// changes its limits. It checks four things: no set is empty; no seat is a CPU
// that another workload owns or has as a seat; there are no more seats than
// CPUs; and work without a quota has no more CPUs than its limit.
func TestSeatsHoldTheirProperties(t *testing.T) {
	rounds, seen := 300, 0
	if testing.Short() {
		rounds = 50
	}
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 18))
		n := anyScene(rnd, 256, 2-rnd.IntN(2))
		n.config.Seats.Enable = true
		for range 12 {
			for i := range n.snap.Workloads {
				if w := &n.snap.Workloads[i]; w.Class == node.BE && rnd.IntN(3) == 0 {
					w.CPULimit = node.Some(unit.MilliCPU(1 + rnd.IntN(6000)))
				}
			}
			n.pass(n.anySpell(rnd))
			n.decide(t)
			seen += len(n.state.Seats.Have)
			n.checkSeats(t, seed)
			if t.Failed() {
				return
			}
		}
	}
	if seen == 0 {
		t.Fatal("no work ever had seats")
	}
}

// checkSeats checks the seats after a decision, when all steps are applied.
func (n *scene) checkSeats(t *testing.T, seed uint64) {
	t.Helper()
	var taken, owned unit.CPUSet
	for _, set := range n.state.Pins {
		owned = owned.Union(set)
	}
	for id, set := range n.state.Seats.Have {
		switch {
		case set.Empty():
			t.Errorf("seed %d: the seats of %s are empty", seed, id)
		case !set.Intersect(taken).Empty():
			t.Errorf("seed %d: %s has seats of another: %v of %v", seed, id, set, taken)
		case !set.Intersect(owned.Union(n.config.Pool.ReservedCPUs)).Empty():
			t.Errorf("seed %d: %s has seats %v on own CPUs %v", seed, id, set, owned)
		case !n.snap.Topology.All().Contains(set):
			t.Errorf("seed %d: %s has seats %v that are offline", seed, id, set)
		}
		taken = taken.Union(set)
	}
	for _, w := range n.wants {
		if v, is := w.Value.(node.CPUs); is && w.Intent == plan.Set && w.BE && v.Set.Empty() {
			t.Errorf("seed %d: %v becomes empty: %s", seed, w.Knob, w.Reason)
		}
	}
	for _, w := range n.snap.Workloads {
		limit, limited := w.CPULimit.Value()
		if w.Class != node.BE || !limited {
			continue
		}
		quota, _ := n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}].(node.CPUMax)
		set, _ := n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}].(node.CPUs)
		if !facts.IsQuota(quota) && unit.CPUs(set.Set.Len()) > limit {
			t.Errorf("seed %d: %s has %v without a quota, and its limit is %v", seed, w.ID, set, limit)
		}
	}
}
