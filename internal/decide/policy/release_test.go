package policy

import (
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
