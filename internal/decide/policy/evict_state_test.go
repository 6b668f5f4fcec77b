package policy

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestEvictionsContinueFromTheSavedState runs two agents. One of them restarts
// with its saved state. Both must make the same decisions.
func TestEvictionsContinueFromTheSavedState(t *testing.T) {
	rnd := rand.New(rand.NewPCG(45, 46))
	amid := 0
	for range 30 {
		n := anyEvictor(rnd)
		for range 20 {
			n.pass(n.anySpell(rnd))
			n.fill(rnd)
			text, err := json.Marshal(n.state.Evictions)
			if err != nil {
				t.Fatal(err)
			}
			var saved evict.State
			if err := json.Unmarshal(text, &saved); err != nil {
				t.Fatal(err)
			}
			if len(saved.Victims) > 0 {
				amid++
			}
			l, u := facts.LayoutOf(n.snap), n.state.Use.Observe(n.snap)
			want, wants := evict.Decide(n.config.Evict, n.state.Evictions, l, u, n.snap)
			got, again := evict.Decide(n.config.Evict, saved, l, u, n.snap)
			if diff := cmp.Diff(wants, again); diff != "" {
				t.Fatalf("after a restart (-without +with):\n%s", diff)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("after a restart (-without +with):\n%s", diff)
			}
			n.decide(t)
		}
	}
	if amid < 20 {
		t.Errorf("only %d restarts amid an eviction", amid)
	}
}

// TestEvictionAtTheEdges decides on snapshots in which inputs are missing or 0.
func TestEvictionAtTheEdges(t *testing.T) {
	c := Config{Evict: evict.Config{
		Memory: evict.MemoryConfig{ThresholdPercent: 1}, CPU: evict.CPUConfig{SatisfactionLower: 60, SatisfactionUpper: 99, ThresholdPercent: 1},
	}}
	be := node.Workload{ID: "be", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"}
	root := node.Workload{ID: "root", Class: node.BE, Usage: node.Usage{Memory: node.Some(unit.MaxBytes)}}
	huge := be
	huge.Usage.Memory, huge.CPURequest, huge.Usage.CPU = node.Some(unit.MaxBytes), node.Some(unit.MilliCPU(1<<40)), node.Some(time.Duration(0))
	for name, s := range map[string]node.Snapshot{
		"nothing":          {},
		"no size":          {Usage: node.Usage{Memory: node.Some(unit.Bytes(5))}, Workloads: []node.Workload{be}},
		"a size of 0":      {MemoryTotal: node.Some(unit.Bytes(0)), Usage: node.Usage{Memory: node.Some(unit.Bytes(5))}, Workloads: []node.Workload{be}},
		"more than all":    {MemoryTotal: node.Some(unit.Bytes(5)), Usage: node.Usage{Memory: node.Some(unit.MaxBytes)}, Workloads: []node.Workload{be, root}},
		"all of a big one": {MemoryTotal: node.Some(unit.MaxBytes), Usage: node.Usage{Memory: node.Some(unit.MaxBytes)}, Topology: machine(2, 1, 1, 1), Workloads: []node.Workload{huge}},
	} {
		s.Knobs.Now = map[node.Knob]node.Value{}
		for _, w := range s.Workloads {
			s.Knobs.Now[evict.RunKnob(w)] = node.Running
		}
		var st State
		for turn := range 3 {
			s.At = time.Unix(int64(turn), 0)
			next, wants := Decide(c, st, s)
			st = next
			for _, w := range wants {
				if w.Knob.File == node.FileRun && w.Value != nil && name != "all of a big one" {
					t.Errorf("%s: %v", name, w)
				}
			}
		}
	}
}

// TestPageCacheIsNeverTakenForGrowth measures the memory of a job with page
// cache and without it, in turn. This change must not look like growth.
func TestPageCacheIsNeverTakenForGrowth(t *testing.T) {
	n := newScene(machine(4, 1, 1, 1), 2)
	n.config.Evict = evict.Config{Memory: evict.MemoryConfig{ThresholdPercent: 70, LowerPercent: 68}, Grace: time.Minute}
	for _, name := range []node.CgroupPath{"be/victim", "be/job"} {
		n.add(node.Workload{ID: node.WorkloadID(name), Class: node.BE, Cgroup: name, ContentionRoot: "be"})
	}
	n.showRuns()
	n.snap.Capabilities[node.FeatureCgroupFreezer] = node.Answer{Verdict: node.Yes}
	use := func(i int, set node.Maybe[unit.Bytes]) {
		n.snap.Workloads[i].Usage.Memory, n.snap.Workloads[i].Usage.WorkingSet = node.Some(20*gib), set
	}
	use(0, node.Some(8*gib))
	use(1, node.Maybe[unit.Bytes]{})
	for turn := range 8 {
		n.snap.At = n.snap.At.Add(time.Second)
		n.snap.Usage.Memory = node.Some(46 * gib)
		for _, s := range n.decide(t) {
			asks := turn == 0 && s.Knob.Cgroup == "be/victim" && s.To == node.AskedToEnd
			if s.Knob.File == node.FileRun && !asks {
				t.Errorf("tick %d: %v", turn, s)
			}
		}
		if len(n.state.Evictions.Victims) != 1 {
			t.Fatalf("tick %d: the victims are %+v", turn, n.state.Evictions.Victims)
		}
		for i := range 2 {
			if turn%2 == i {
				use(i, node.Maybe[unit.Bytes]{})
			} else {
				use(i, node.Some(8*gib))
			}
		}
	}
}
