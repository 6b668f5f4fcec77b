package shadow

import (
	"fmt"
	"maps"
	"testing"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var (
	quota   = node.Knob{Cgroup: "be", File: node.FileCPUMax}
	threads = node.Knob{Cgroup: "be", File: node.FileSlice}
	weight  = func(w int64) node.Value { return node.CPUWeight{Weight: unit.WeightOf(w)} }
	shares  = node.Knob{Cgroup: "be", File: node.FileCPUWeight}
)

// snapshot returns a snapshot with the given real knobs.
func snapshot(now map[node.Knob]node.Value) node.Snapshot {
	return node.Snapshot{Knobs: node.Knobs{Now: now}}
}

// step returns the step that plan.Diff makes for a want of a value.
func step(t *testing.T, s node.Snapshot, k node.Knob, intent plan.Intent, to node.Value) []plan.Step {
	t.Helper()
	steps := plan.Diff(s.Knobs, []plan.Want{{Knob: k, Intent: intent, Value: to, Owner: plan.OwnerSuppress}})
	if len(steps) > 1 {
		t.Fatalf("%d steps", len(steps))
	}
	return steps
}

// TestAVirtualKnobStaysAsItWasSet sets a knob that stays as it is on the node. No second
// step may follow, and a release restores the real value.
func TestAVirtualKnobStaysAsItWasSet(t *testing.T) {
	var w World
	real := map[node.Knob]node.Value{quota: node.Limit(4000)}
	s := w.See(snapshot(real))
	first := step(t, s, quota, plan.Set, node.Limit(1000))
	w.Perform(first)
	if len(first) != 1 || real[quota] != node.Limit(4000) || len(s.Knobs.Before) != 0 {
		t.Fatalf("the first tick: %v; the node has %v", first, real)
	}
	s = w.See(snapshot(real))
	if again := step(t, s, quota, plan.Set, node.Limit(1000)); len(again) > 0 || s.Knobs.Before[quota] != node.Limit(4000) {
		t.Errorf("the second tick: %v with %v", again, s.Knobs)
	}
	w.Perform(step(t, s, quota, plan.Release, nil))
	if s = w.See(snapshot(real)); s.Knobs.Now[quota] != node.Limit(4000) || len(s.Knobs.Before) != 0 {
		t.Errorf("after the release: %v", s.Knobs)
	}
	if got := w.Steps(); !maps.Equal(got, map[plan.Owner]int64{plan.OwnerSuppress: 2}) {
		t.Errorf("the steps are %v", got)
	}
}

// TestAWriteOfAnotherComponentCounts changes the real value of a knob that a step has
// set. If an agent of Tenon wrote it, as in a replay, that did not happen in this world.
func TestAWriteOfAnotherComponentCounts(t *testing.T) {
	for name, c := range map[string]struct {
		before map[node.Knob]node.Value // what the record of an agent says
		want   node.Value
	}{
		"the kubelet":   {nil, node.Limit(2000)},
		"another agent": {map[node.Knob]node.Value{quota: node.Limit(4000)}, node.Limit(1000)},
	} {
		var w World
		s := w.See(snapshot(map[node.Knob]node.Value{quota: node.Limit(4000)}))
		w.Perform(step(t, s, quota, plan.Set, node.Limit(1000)))
		next := snapshot(map[node.Knob]node.Value{quota: node.Limit(2000)})
		next.Knobs.Before = c.before
		if got := w.See(next).Knobs.Now[quota]; got != c.want {
			t.Errorf("%s: the knob is %v, want %v", name, got, c.want)
		}
		// The agent releases the knob, which is no write of another component either.
		if got := w.See(snapshot(map[node.Knob]node.Value{quota: node.Limit(4000)})).Knobs.Now[quota]; c.before != nil && got != c.want {
			t.Errorf("%s, after a release: the knob is %v, want %v", name, got, c.want)
		}
	}
}

// TestThreadsThatStartAreNoWrite changes a value that changes when threads start.
func TestThreadsThatStartAreNoWrite(t *testing.T) {
	var w World
	s := w.See(snapshot(map[node.Knob]node.Value{threads: node.ThreadsNormal}))
	w.Perform(step(t, s, threads, plan.Set, node.ThreadsBE))
	if got := w.See(snapshot(map[node.Knob]node.Value{threads: node.ThreadsMixed})).Knobs.Now[threads]; got != node.ThreadsBE {
		t.Errorf("the threads are %v", got)
	}
}

// TestWhatAStepMadeStaysWhileItsCgroupDoes sets knobs that the node does not have: of a
// control group, and of a cgroup whose file cannot be read.
func TestWhatAStepMadeStaysWhileItsCgroupDoes(t *testing.T) {
	var w World
	cache := node.Knob{ControlGroup: "BE", File: node.FileL3}
	real := map[node.Knob]node.Value{shares: weight(100)}
	for range 3 {
		s := w.See(snapshot(real))
		for k, v := range map[node.Knob]node.Value{cache: node.Limit(1), quota: node.Limit(1000)} {
			w.Perform(step(t, s, k, plan.Set, v))
		}
	}
	if got := w.Steps()[plan.OwnerSuppress]; got != 2 {
		t.Errorf("%d steps in three ticks, want one for each knob", got)
	}
	s := w.See(snapshot(nil))
	if _, left := s.Knobs.Now[quota]; left || s.Knobs.Now[cache] == nil || s.Knobs.Now[shares] != nil {
		t.Errorf("after the end of the cgroup: %v", s.Knobs.Now)
	}
}

// TestAShadowTriesNoMechanism checks the configuration of a shadow: no trial, and no
// mechanism whose effect only the kernel shows.
func TestAShadowTriesNoMechanism(t *testing.T) {
	c := Config(policy.Config{CPUQOS: isolation.Config{Enable: true, Mechanism: node.MechanismSchedExt}})
	if q := c.CPUQOS; !q.Enable || q.Mechanism != "" || !q.Measured || !q.NoTrials {
		t.Errorf("%+v", q)
	}
}

// TestNothingIsMadeAgainForAQuietNode checks that a tick without a change costs no copy, and
// that a step is seen in the next tick.
func TestNothingIsMadeAgainForAQuietNode(t *testing.T) {
	var w World
	quiet := snapshot(map[node.Knob]node.Value{quota: node.Limit(4000)})
	first := w.See(quiet)
	if n := testing.AllocsPerRun(10, func() { w.See(quiet) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	w.Perform(step(t, first, quota, plan.Set, node.Limit(1000)))
	if got := w.See(quiet).Knobs.Now[quota]; got != node.Limit(1000) || first.Knobs.Now[quota] != node.Limit(4000) {
		t.Errorf("after a step, the knob is %v, and was %v before it", got, first.Knobs.Now[quota])
	}
}

// BenchmarkSee has a node with 100 workloads of which each has eight knobs. A quarter of
// the knobs is virtual.
func BenchmarkSee(b *testing.B) {
	var w World
	s := snapshot(map[node.Knob]node.Value{})
	var steps []plan.Step
	for i := range 100 {
		for j := range 8 {
			k := node.Knob{Cgroup: node.CgroupPath(fmt.Sprintf("kubepods/besteffort/pod%d/c%d", i, j)), File: node.FileCPUMax}
			s.Knobs.Now[k] = node.Limit(unit.MilliCPU(1000 + j))
			if j < 2 {
				steps = append(steps, plan.Step{Knob: k, From: s.Knobs.Now[k], To: node.Limit(500)})
			}
		}
	}
	w.See(s)
	w.Perform(steps)
	b.ReportAllocs()
	var changes unit.MilliCPU
	for b.Loop() {
		s.Knobs.Now = maps.Clone(s.Knobs.Now)
		changes++
		s.Knobs.Now[quota] = node.Limit(changes)
		w.See(s)
	}
}
