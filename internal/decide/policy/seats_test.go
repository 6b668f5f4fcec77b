package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestSeatsHoldTheirProperties runs random nodes whose work starts, ends and
// changes its limits. It checks four things: no set is empty; no CPU belongs to
// two workloads, as a seat or as an own CPU; there are no more seats than CPUs;
// and work without a quota has no more CPUs than its limit.
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
	for _, a := range n.state.CPUs.Allocations {
		owned = owned.Union(a.CPUs)
	}
	for id, set := range n.state.Seats.Have {
		switch {
		case set.Empty():
			t.Errorf("seed %d: the seats of %s are empty", seed, id)
		case !set.Intersect(taken).Empty():
			t.Errorf("seed %d: %s has seats of another: %v of %v", seed, id, set, taken)
		case !set.Intersect(owned.Union(n.config.NodeCPUs.ReservedCPUs)).Empty():
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

// readSlice reads a slice in the form NAME:COUNTxCPUS. It replaces a slice of
// the same name.
func (n *scene) readSlice(t *testing.T, w word) {
	t.Helper()
	one := mustParse(t, w, func(text string) (s worker.Slice, err error) {
		i := strings.IndexByte(text, ':')
		if i < 0 {
			return s, fmt.Errorf("slice %q: want NAME:COUNTxCPUS", text)
		}
		s.Name, s.Rules = text[:i], []string{text[:i]}
		_, err = fmt.Sscanf(text[i+1:], "%dx%d", &s.Count, &s.CPUs)
		return s, err
	})
	rest := slices.DeleteFunc(slices.Clone(n.config.Seats.Slices), func(s worker.Slice) bool { return s.Name == one.Name })
	n.config.Seats.Slices = append(rest, one)
}

// TestSlicesHoldTheirProperties resizes slices on random nodes while work comes
// and goes. Two workers, or a worker and an owner of CPUs, must have no CPU in
// common. Either all work of a worker has the worker's CPUs, or none has. A
// worker without work has no CPUs.
func TestSlicesHoldTheirProperties(t *testing.T) {
	rounds, seen := 60, 0
	if testing.Short() {
		rounds = 15
	}
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 19))
		n := anyScene(rnd, 256, 2-rnd.IntN(2))
		n.config.Seats.Enable = rnd.IntN(2) == 0
		for range 12 {
			n.config.Seats.Slices = []worker.Slice{
				{Name: "a", Count: 1 + rnd.IntN(4), CPUs: 1 + rnd.IntN(8), Rules: []string{"a"}},
				{Name: "b", Count: 1 + rnd.IntN(2), CPUs: 1 + rnd.IntN(3), Rules: []string{"b"}},
			}
			for i := range n.snap.Workloads {
				if w := &n.snap.Workloads[i]; w.Class == node.BE {
					w.Rule = []string{"a", "b", ""}[i%3]
				}
			}
			n.pass(n.anySpell(rnd))
			n.decide(t)
			n.checkSeats(t, seed)
			seen += n.checkSlices(t, seed)
			if t.Failed() {
				return
			}
		}
	}
	if seen == 0 {
		t.Fatal("no worker ever had CPUs")
	}
}

// checkSlices checks the workers after a decision, and returns how many have CPUs.
func (n *scene) checkSlices(t *testing.T, seed uint64) (seen int) {
	t.Helper()
	var taken unit.CPUSet
	for _, a := range n.state.CPUs.Allocations {
		taken = taken.Union(a.CPUs)
	}
	for _, set := range n.state.Seats.Have {
		taken = taken.Union(set)
	}
	for _, s := range n.state.Seats.Slices(n.config.Seats) {
		for _, w := range s.Workers {
			switch {
			case len(w.Work) == 0 && !w.CPUs.Empty():
				t.Errorf("seed %d: worker %d of %s has CPUs and no work", seed, w.Number, s.Name)
			case w.CPUs.Len() > s.CPUs:
				t.Errorf("seed %d: worker %d of %s has %v, and the slice has %d CPUs a worker", seed, w.Number, s.Name, w.CPUs, s.CPUs)
			case !w.CPUs.Intersect(taken).Empty():
				t.Errorf("seed %d: worker %d of %s has CPUs of another: %v of %v", seed, w.Number, s.Name, w.CPUs, taken)
			}
			taken = taken.Union(w.CPUs)
			if !w.CPUs.Empty() {
				seen++
			}
			n.checkWorker(t, seed, w)
		}
	}
	return seen
}

func (n *scene) checkWorker(t *testing.T, seed uint64, w worker.Worker) {
	t.Helper()
	for _, want := range n.wants {
		of, set := want.Value.(node.CPUs)
		for _, id := range w.Work {
			i := slices.IndexFunc(n.snap.Workloads, func(o node.Workload) bool { return o.ID == id })
			if set && !w.CPUs.Empty() && want.Intent == plan.Set && want.Knob.Cgroup == n.snap.Workloads[i].Cgroup && n.snap.Knobs.Kernel.CgroupVersion == 2 && of.Set != w.CPUs {
				t.Errorf("seed %d: %s is in a worker with %v and is to have %v: %s", seed, id, w.CPUs, of.Set, want.Reason)
			}
		}
	}
}
