package policy

import (
	"maps"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestASetIsReleasedWhenNothingBelowHasMore releases cpusets of cgroup v1 over
// cgroups that have more than the old set, or other CPUs. The kernel must refuse no
// step, and in the end each cgroup of Tenon must have its old set.
func TestASetIsReleasedWhenNothingBelowHasMore(t *testing.T) {
	for name, tc := range map[string]struct {
		before, now map[node.CgroupPath]string
		ticks       int
	}{
		"a cgroup of another component has the set from Tenon": {
			before: map[node.CgroupPath]string{"be": "1"}, now: map[node.CgroupPath]string{"be": "1-2", "be/guest": "1-2"}, ticks: 0,
		},
		"a parent and its child exchange": {
			before: map[node.CgroupPath]string{"be": "0-1", "be/pod": "0-1"}, now: map[node.CgroupPath]string{"be": "1-2", "be/pod": "1-2"}, ticks: 2,
		},
		"both widen": {
			before: map[node.CgroupPath]string{"be": "0-3", "be/pod": "0-3"}, now: map[node.CgroupPath]string{"be": "1", "be/pod": "1"}, ticks: 1,
		},
		"both narrow": {
			before: map[node.CgroupPath]string{"be": "1", "be/pod": "1"}, now: map[node.CgroupPath]string{"be": "0-3", "be/pod": "0-3"}, ticks: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newScene(machine(4, 1, 1, 1), 1)
			knob := func(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUs} }
			set := func(text string) node.Value {
				s, err := unit.ParseCPUSet(text)
				if err != nil {
					t.Fatal(err)
				}
				return node.CPUs{Set: s}
			}
			for p, text := range tc.now {
				n.makeGroup(p)
				n.snap.Knobs.Now[knob(p)] = set(text)
			}
			for p, text := range tc.before {
				n.snap.Knobs.Before[knob(p)] = set(text)
			}
			release := func() []plan.Step {
				wants := orphans(facts.LayoutOf(n.snap), n.snap, nil)
				releaseInSteps(n.snap.Knobs, wants)
				return n.apply(t, plan.Diff(n.snap.Knobs, wants))
			}
			ticks := 0
			for len(release()) > 0 {
				if ticks++; ticks > 5 {
					t.Fatalf("not at rest after %d ticks: %v", ticks, n.snap.Knobs.Now)
				}
			}
			if ticks != tc.ticks {
				t.Errorf("%d ticks with writes, want %d", ticks, tc.ticks)
			}
			if tc.ticks == 0 { // the other component removes its cgroup
				delete(n.snap.Knobs.Now, knob("be/guest"))
				release()
			}
			for p, text := range tc.before {
				if got := n.snap.Knobs.Now[knob(p)]; got != set(text) {
					t.Errorf("%s is left at %v, want %s", p, got, text)
				}
			}
			if left := len(n.snap.Knobs.Before); left > 0 {
				t.Errorf("%d knobs are still Tenon's", left)
			}
		})
	}
}

// TestSetsAreReleasedOnAnyTree releases the cpusets of random trees of cgroup v1, in
// which some cgroups belong to other components. The kernel must refuse no step. In
// the end, each set is the old one, or has besides only what is in use below it.
func TestSetsAreReleasedOnAnyTree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(97, 98))
	paths := []node.CgroupPath{"a", "a/b", "a/b/c", "a/d", "a/d/e"}
	anySets := func() map[node.CgroupPath]unit.CPUSet {
		sets := map[node.CgroupPath]unit.CPUSet{"": unit.CPUSetOf(0, 1, 2, 3)}
		for _, p := range paths {
			var set unit.CPUSet
			for c := range sets[p.Parent()].All() {
				if rnd.IntN(2) == 0 {
					set.Add(c)
				}
			}
			if sets[p] = set; set.Empty() {
				sets[p] = sets[p.Parent()]
			}
		}
		return sets
	}
	for try := range 4000 {
		n, file := newScene(machine(4, 1, 1, 1), 1), []node.File{node.FileCPUs, node.FileMems}[try%2]
		knob := func(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: file} }
		before, now := anySets(), anySets()
		fits := true
		for _, p := range paths {
			n.makeGroup(p)
			n.snap.Knobs.Now[knob(p)] = node.CPUs{Set: now[p]}
			if rnd.IntN(3) == 0 { // of another component
				before[p] = now[p]
				continue
			}
			n.snap.Knobs.Before[knob(p)] = node.CPUs{Set: before[p]}
			up, touched := n.snap.Knobs.Before[knob(p.Parent())]
			fits = fits && (p.Parent() == "" || touched && up.(node.CPUs).Set.Contains(before[p]) || !touched && now[p.Parent()].Contains(before[p]))
		}
		if !fits { // the owner of a parent has narrowed it since then
			continue
		}
		start := maps.Clone(n.snap.Knobs.Now)
		for tick := 0; ; tick++ {
			wants := orphans(facts.LayoutOf(n.snap), n.snap, nil)
			releaseInSteps(n.snap.Knobs, wants)
			steps := n.apply(t, plan.Diff(n.snap.Knobs, wants))
			if t.Failed() || tick > 5 {
				t.Fatalf("try %d, tick %d: from %v to %v, now %v: %v", try, tick, start, before, n.snap.Knobs.Now, steps)
			}
			if len(steps) == 0 {
				break
			}
		}
		for k := range n.snap.Knobs.Before {
			least := before[k.Cgroup]
			for _, p := range paths {
				if v := n.snap.Knobs.Now[knob(p)]; p.Parent() == k.Cgroup {
					least = least.Union(v.(node.CPUs).Set)
				}
			}
			if got := n.snap.Knobs.Now[k].(node.CPUs).Set; got != least || got == before[k.Cgroup] {
				t.Fatalf("try %d: %v is at %v, was %v, and needs %v", try, k, got, before[k.Cgroup], least)
			}
		}
	}
}
