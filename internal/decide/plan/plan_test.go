package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var v1 = node.Kernel{CgroupVersion: 1, PageSize: 4096}

func cpus(t *testing.T, s string) node.Value {
	t.Helper()
	set, err := unit.ParseCPUSet(s)
	if err != nil {
		t.Fatal(err)
	}
	return node.CPUs{Set: set}
}

func lines(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

func TestChildrenShrinkBeforeParentsAndParentsWidenBeforeChildren(t *testing.T) {
	parent, child := node.Knob{Cgroup: "be", File: node.FileCPUs}, node.Knob{Cgroup: "be/pod", File: node.FileCPUs}
	have := func(s string) node.Knobs {
		return node.Knobs{Kernel: v1, Now: map[node.Knob]node.Value{parent: cpus(t, s), child: cpus(t, s)}}
	}
	want := func(s string) []Want {
		return []Want{{Intent: Set, Knob: child, Value: cpus(t, s)}, {Intent: Set, Knob: parent, Value: cpus(t, s)}}
	}
	if got := lines(Diff(have("0-3"), want("0"))); got != "be/pod cpuset.cpus 0-3 -> 0\nbe cpuset.cpus 0-3 -> 0\n" {
		t.Errorf("shrink:\n%s", got)
	}
	if got := lines(Diff(have("0"), want("0-3"))); got != "be cpuset.cpus 0 -> 0-3\nbe/pod cpuset.cpus 0 -> 0-3\n" {
		t.Errorf("widen:\n%s", got)
	}
}

// TestAnExchangeComesBeforeItsParentNarrows checks a child on cgroup v1 that
// exchanges its CPUs within those of its parent. The child's step must come
// after the parent has the new CPUs, and before the parent loses the old ones.
func TestAnExchangeComesBeforeItsParentNarrows(t *testing.T) {
	parent, child := node.Knob{Cgroup: "be", File: node.FileCPUs}, node.Knob{Cgroup: "be/pod", File: node.FileCPUs}
	steps := func(parentNow, parentNext string) string {
		have := node.Knobs{Kernel: v1, Now: map[node.Knob]node.Value{parent: cpus(t, parentNow), child: cpus(t, "3")}}
		return lines(Diff(have, []Want{{Intent: Set, Knob: parent, Value: cpus(t, parentNext), BE: true}, {Intent: Set, Knob: child, Value: cpus(t, "1"), BE: true}}))
	}
	if got := steps("0-3", "0-2"); got != "be/pod cpuset.cpus 3 -> 1\nbe cpuset.cpus 0-3 -> 0-2\n" {
		t.Errorf("the parent narrows:\n%s", got)
	}
	if got := steps("3", "0-3"); got != "be cpuset.cpus 3 -> 0-3\nbe/pod cpuset.cpus 3 -> 1\n" {
		t.Errorf("the parent widens:\n%s", got)
	}
}

// TestAQuotaWaitsForRoomAbove checks the first quota of a child on cgroup v1.
// Its step must come after the step of the same tick that widens the parent.
func TestAQuotaWaitsForRoomAbove(t *testing.T) {
	parent, child := node.Knob{Cgroup: "be", File: node.FileCPUMax}, node.Knob{Cgroup: "be/pod/job", File: node.FileCPUMax}
	none := node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	for _, tc := range []struct {
		kernel node.Kernel
		quota  unit.MilliCPU
		first  node.Knob
	}{
		{v1, 1500, parent}, {v1, 400, child},
		{node.Kernel{CgroupVersion: 2, PageSize: 4096}, 1500, child}, // on v2 the smaller quota applies at once
	} {
		have := node.Knobs{
			Kernel: tc.kernel, Now: map[node.Knob]node.Value{parent: node.Limit(500), child: none}, Before: map[node.Knob]node.Value{parent: none},
		}
		steps := Diff(have, []Want{{Intent: Release, Knob: parent, BE: true}, {Intent: Set, Knob: child, Value: node.Limit(tc.quota), BE: true}})
		if len(steps) != 2 || steps[0].Knob != tc.first {
			t.Errorf("v%d, %v:\n%swant %v first", tc.kernel.CgroupVersion, tc.quota, lines(steps), tc.first)
		}
	}
}

func TestEqualAsTheKernelRoundsMakesNoStep(t *testing.T) {
	k := node.Knob{Cgroup: "ls", File: node.FileMemory}
	have := node.Knobs{Kernel: v1, Now: map[node.Knob]node.Value{k: node.Memory{High: unit.MaxBytes, Max: 999424}}}
	w := Want{Intent: Set, Knob: k, Value: node.Memory{High: unit.MaxBytes, Max: 1000001}}
	if got := Diff(have, []Want{w}); len(got) != 0 {
		t.Errorf("steps for a value that is already there: %v", got)
	}
}

func TestReleaseRestoresOnlyWhatTenonTouched(t *testing.T) {
	touched, other := node.Knob{Cgroup: "be", File: node.FileCPUMax}, node.Knob{Cgroup: "ls", File: node.FileCPUMax}
	none := node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	have := node.Knobs{
		Now:    map[node.Knob]node.Value{touched: node.Limit(500), other: node.Limit(500)},
		Before: map[node.Knob]node.Value{touched: none},
	}
	steps := Diff(have, []Want{{Intent: Release, Knob: touched}, {Intent: Release, Knob: other}, {Intent: Abstain, Knob: other}})
	if len(steps) != 1 || !steps[0].Release || steps[0].To != none {
		t.Errorf("%v", steps)
	}
}

func TestNarrowingBEComesFirstAndIsNeverCut(t *testing.T) {
	ls, be := node.Knob{Cgroup: "ls/web/deep", File: node.FileCPUMax}, node.Knob{Cgroup: "be", File: node.FileCPUMax}
	up := node.Knob{Cgroup: "other", File: node.FileCPUMax}
	have := node.Knobs{Now: map[node.Knob]node.Value{ls: node.Limit(2000), be: node.Limit(2000), up: node.Limit(1000)}}
	steps := Diff(have, []Want{
		{Intent: Set, Knob: up, Value: node.Limit(3000)},
		{Intent: Set, Knob: ls, Value: node.Limit(1000)},
		{Intent: Set, Knob: be, Value: node.Limit(1000), BE: true},
	})
	if steps[0].Knob != be || steps[1].Knob != ls || steps[2].Knob != up {
		t.Errorf("order:\n%s", lines(steps))
	}
	if cut := Bound(steps, 1); len(cut) != 1 || cut[0].Knob != be {
		t.Errorf("bound 1:\n%s", lines(cut))
	}
	// The step that narrows BE stays even if other steps use up the bound.
	if cut := Bound([]Step{steps[1], steps[2], steps[0]}, 1); len(cut) != 2 || cut[1].Knob != be {
		t.Errorf("narrowing of BE was cut:\n%s", lines(cut))
	}
}

// The kernel compares identity marks at each level. The mark of a child
// therefore has an effect only while its parent has one.
func TestParentsAreMarkedFirstAndUnmarkedLast(t *testing.T) {
	parent, child := node.Knob{Cgroup: "w", File: node.FileIdentity}, node.Knob{Cgroup: "w/pod", File: node.FileIdentity}
	for name, c := range map[string]struct {
		from, to node.Identity
		be       bool
		first    node.Knob
	}{
		"BE is marked":      {node.IdentityNone, node.IdentityBE, true, parent},
		"BE is unmarked":    {node.IdentityBE, node.IdentityNone, true, child},
		"LS is marked":      {node.IdentityNone, node.IdentityExpels, false, parent},
		"LS is unmarked":    {node.IdentityExpels, node.IdentityNone, false, child},
		"LS becomes gentle": {node.IdentityExpels, node.IdentityHigh, false, child},
	} {
		have := node.Knobs{Now: map[node.Knob]node.Value{parent: c.from, child: c.from}, Before: map[node.Knob]node.Value{parent: node.IdentityNone, child: node.IdentityNone}}
		for _, intent := range []Intent{Set, Release} {
			if intent == Release && c.to != node.IdentityNone {
				continue
			}
			wants := []Want{{Intent: intent, Knob: child, Value: c.to, BE: c.be}, {Intent: intent, Knob: parent, Value: c.to, BE: c.be}}
			for range 2 { // in either order
				if steps := Diff(have, wants); len(steps) != 2 || steps[0].Knob != c.first {
					t.Errorf("%s (%s):\n%s", name, intent, lines(steps))
				}
				slices.Reverse(wants)
			}
		}
	}
}

// On a random tree with a random target, a child may at no time have more than
// its parent.
func TestNoChildEverExceedsItsParent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	paths := []node.CgroupPath{"a", "a/b", "a/b/c", "a/d", "a/d/e", "a/d/f"}
	subset := func(of unit.CPUSet) unit.CPUSet {
		s := unit.CPUSet{}
		for c := range of.All() {
			if rnd.IntN(2) == 0 {
				s = s.With(c)
			}
		}
		if s.Empty() {
			return of
		}
		return s
	}
	all, err := unit.ParseCPUSet("0-7")
	if err != nil {
		t.Fatal(err)
	}
	tree := func() map[node.Knob]node.Value {
		m := map[node.Knob]node.Value{}
		for _, p := range paths {
			of := all
			if up, ok := m[node.Knob{Cgroup: p.Parent(), File: node.FileCPUs}].(node.CPUs); ok {
				of = up.Set
			}
			m[node.Knob{Cgroup: p, File: node.FileCPUs}] = node.CPUs{Set: subset(of)}
		}
		return m
	}
	// If two sets overlap only partly, two steps are necessary, through the
	// union of the sets. Policies keep BE sets nested, so Diff does not handle
	// that case.
	nested := func(a, b map[node.Knob]node.Value) bool {
		for k := range a {
			if a[k] != b[k] && a[k].CompareWidth(b[k]) == 0 {
				return false
			}
		}
		return true
	}
	tried := 0
	for range 400000 {
		now, target := tree(), tree()
		if !nested(now, target) {
			continue
		}
		tried++
		var wants []Want
		be := rnd.IntN(2) == 0 // a subtree is wholly BE or not at all
		for k, v := range target {
			wants = append(wants, Want{Intent: Set, Knob: k, Value: v, BE: be})
		}
		for _, s := range Diff(node.Knobs{Kernel: v1, Now: now}, wants) {
			now[s.Knob] = s.To
			for _, p := range paths[1:] {
				up := now[node.Knob{Cgroup: p.Parent(), File: node.FileCPUs}].(node.CPUs)
				down := now[node.Knob{Cgroup: p, File: node.FileCPUs}].(node.CPUs)
				if !up.Set.Contains(down.Set) {
					t.Fatalf("after %v, %s has %v and its parent %v", s, p, down, up)
				}
			}
		}
	}
	if tried < 20 {
		t.Fatalf("only %d trees were tried", tried)
	}
}

// TestTheFirstWantForAKnobCounts checks wants for the same knob. The first one
// counts even if it needs no step, and even if it has no value at all.
func TestTheFirstWantForAKnobCounts(t *testing.T) {
	a, b := node.Knob{Cgroup: "a", File: node.FileCPUs}, node.Knob{Cgroup: "b", File: node.FileCPUs}
	have := node.Knobs{Kernel: v1, Now: map[node.Knob]node.Value{a: cpus(t, "0-3"), b: cpus(t, "0-3")}, Before: map[node.Knob]node.Value{a: cpus(t, "0-7")}}
	to := func(k node.Knob, set string) Want { return Want{Intent: Set, Knob: k, Value: cpus(t, set)} }
	for name, c := range map[string]struct {
		wants []Want
		want  string
	}{
		"no step, then one":       {[]Want{to(a, "0-3"), to(a, "0")}, ""},
		"no value, then one":      {[]Want{{Intent: Abstain, Knob: a}, to(a, "0")}, ""},
		"two steps":               {[]Want{to(a, "0"), to(a, "1")}, "a cpuset.cpus 0-3 -> 0\n"},
		"a step, then a release":  {[]Want{to(a, "0"), {Intent: Release, Knob: a}}, "a cpuset.cpus 0-3 -> 0\n"},
		"another knob in between": {[]Want{to(a, "0-3"), to(b, "1"), to(a, "0"), to(b, "2")}, "b cpuset.cpus 0-3 -> 1\n"},
	} {
		if got := lines(Diff(have, c.wants)); got != c.want {
			t.Errorf("%s:\n%swant\n%s", name, got, c.want)
		}
	}
}

// TestFrequentValuesAreNotRounded checks the types of values for which Diff does
// not ask how the kernel rounds them.
func TestFrequentValuesAreNotRounded(t *testing.T) {
	for _, v := range []node.Value{node.CPUs{Set: unit.CPUSetOf(1, 3)}, node.Frozen, node.SchedulerGroup{Slot: 3, Weight: 7}} {
		have := node.Knobs{Now: map[node.Knob]node.Value{{Cgroup: "a"}: nil}, Kernel: node.Kernel{CgroupVersion: 1}}
		steps := Diff(have, []Want{{Knob: node.Knob{Cgroup: "a"}, Intent: Set, Value: v}})
		if len(steps) != 1 || steps[0].To != v.Round(have.Kernel) {
			t.Errorf("%v: %v", v, steps)
		}
	}
}
