package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/machine/vendormark"
	"tenon.sh/tenon/internal/model/node"
)

// newVendorBench returns a bench on a kernel with marks. The switch of the
// marks is off. The files accept any text. The tests of package cgroup check
// what such kernels refuse.
func newVendorBench(t *testing.T, sysctls map[string]string, files map[string]string) *bench {
	t.Helper()
	b := newBench(t, true)
	for _, p := range []string{"be", "be/a", "be/b", "ls"} {
		for name, text := range files {
			b.put(t, filepath.Join(b.root, p, name), text)
		}
	}
	b.procOf(t, nil)
	sys := filepath.Join(b.fs.Proc, "sys")
	if err := os.Remove(sys); err != nil {
		t.Fatal(err)
	}
	for name, text := range sysctls {
		b.put(t, filepath.Join(sys, "kernel", name), text)
	}
	b.can = func() node.Capabilities { return node.Capabilities{node.FeatureGroupIdentity: available("model")} }
	b.Show([]node.File{node.FileCPUWeight, node.FileIdentity})
	return b
}

func (b *bench) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func mark(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileIdentity} }

func TestMarksTurnTheSwitchOnAndGiveItBack(t *testing.T) {
	b := newVendorBench(t, map[string]string{"sched_group_identity_enabled": "0\n"}, map[string]string{"cpu.bvt_warp_ns": "0\n"})
	heeded := filepath.Join(b.fs.Proc, "sys/kernel/sched_group_identity_enabled")
	b.snapshot(t)
	do(t, b.set(t, mark("be"), node.IdentityBE), b.set(t, mark("ls"), node.IdentityExpels))
	if b.file(t, heeded) != "1" || b.file(t, filepath.Join(b.root, "be/cpu.bvt_warp_ns")) != "-1" || b.file(t, filepath.Join(b.root, "ls/cpu.bvt_warp_ns")) != "2" {
		t.Errorf("the switch is %s", b.file(t, heeded))
	}
	s := b.snapshot(t)
	if s.Knobs.Now[mark("be")] != node.IdentityBE || s.Knobs.Before[mark("be")] != node.IdentityNone {
		t.Errorf("shown as %v, before %v", s.Knobs.Now[mark("be")], s.Knobs.Before[mark("be")])
	}
	if _, shown := s.Knobs.Before[vendormark.Switch]; shown {
		t.Error("the switch is shown: a policy that does not know it would release it")
	}
	do(t, b.release(t, mark("be")))
	if b.file(t, heeded) != "1" {
		t.Error("the switch is off while a mark is left")
	}
	do(t, b.release(t, mark("ls")))
	if b.file(t, heeded) != "0" || !b.journaled(t).Empty() {
		t.Errorf("in the end the switch is %s, left: %v", b.file(t, heeded), b.journaled(t))
	}
}

func TestRestoreTakesMarksAndSwitchBack(t *testing.T) {
	b := newVendorBench(t, map[string]string{"sched_group_identity_enabled": "0\n"}, map[string]string{"cpu.bvt_warp_ns": "0\n"})
	heeded := filepath.Join(b.fs.Proc, "sys/kernel/sched_group_identity_enabled")
	b.snapshot(t)
	do(t, b.set(t, mark("be"), node.IdentityBE), b.set(t, mark("ls"), node.IdentityExpels))
	b.put(t, filepath.Join(b.root, "ls/cpu.bvt_warp_ns"), "1\n") // as if the owner had written it now
	r, err := b.Restore(t.Context())
	do(t, err)
	if b.file(t, heeded) != "0" || b.file(t, filepath.Join(b.root, "be/cpu.bvt_warp_ns")) != "0" || b.file(t, filepath.Join(b.root, "ls/cpu.bvt_warp_ns")) != "1" {
		t.Errorf("the switch is %s, be %s", b.file(t, heeded), b.file(t, filepath.Join(b.root, "be/cpu.bvt_warp_ns")))
	}
	if len(r.Left) != 1 || r.Left[0].Knob != mark("ls") || !b.journaled(t).Empty() {
		t.Errorf("restore: %v\nleft in the journal: %v", r, b.journaled(t))
	}
}

func TestMarksAreNotMadeBesideCoreScheduling(t *testing.T) {
	b := newVendorBench(t, map[string]string{"sched_group_identity_enabled": "0\n", "sched_core": "1\n"}, map[string]string{"cpu.bvt_warp_ns": "0\n"})
	b.snapshot(t)
	if err := b.set(t, mark("be"), node.IdentityBE); err == nil || !strings.Contains(err.Error(), "sched_core") {
		t.Errorf("got %v, want a refusal that names sched_core", err)
	}
	if f := b.snapshot(t).Isolation.Failures; len(f) != 1 || f[0].Mechanism != node.MechanismVendor {
		t.Errorf("falls %v", f)
	}
	if !b.journaled(t).Empty() {
		t.Errorf("journaled: %v", b.journaled(t))
	}
}

func TestMarksAreNotMadeBesideCoreSchedulingTurnedOnLater(t *testing.T) {
	for name, sysctls := range map[string]map[string]string{
		"the switch is on":   {"sched_group_identity_enabled": "1\n", "sched_core": "0\n"},
		"there is no switch": {"sched_core": "0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newVendorBench(t, sysctls, map[string]string{"cpu.bvt_warp_ns": "0\n"})
			b.snapshot(t)
			do(t, b.set(t, mark("be"), node.IdentityBE))
			b.put(t, filepath.Join(b.fs.Proc, "sys/kernel/sched_core"), "1\n")
			if err := b.set(t, mark("ls"), node.IdentityExpels); err == nil || !strings.Contains(err.Error(), "sched_core") {
				t.Errorf("got %v, want a refusal that names sched_core", err)
			}
			if got := b.file(t, filepath.Join(b.root, "ls/cpu.bvt_warp_ns")); got != "0" {
				t.Errorf("marked with %s", got)
			}
			do(t, b.release(t, mark("be")))
		})
	}
}

func TestRefusedMarkLeavesTheSwitchAsItWas(t *testing.T) {
	b := newVendorBench(t, map[string]string{"sched_group_identity_enabled": "0\n"}, map[string]string{"cpu.bvt_warp_ns": "0\n"})
	file := filepath.Join(b.root, "be/cpu.bvt_warp_ns")
	b.snapshot(t)
	if err := b.set(t, mark("be"), node.Identity(9)); err == nil {
		t.Fatal("a mark that no kernel has was taken")
	}
	if got := b.file(t, filepath.Join(b.fs.Proc, "sys/kernel/sched_group_identity_enabled")); got != "0" || b.file(t, file) != "0" || !b.journaled(t).Empty() {
		t.Errorf("the switch is %s, journaled: %v", got, b.journaled(t))
	}
}

// TestMarkThatIdlesGivesTheWeightBack uses a kernel that makes a marked group
// idle and loses its weight. A release must restore the weight.
func TestMarkThatIdlesGivesTheWeightBack(t *testing.T) {
	weight := node.Knob{Cgroup: "be/a", File: node.FileCPUWeight}
	scene := func(t *testing.T) *bench {
		b := newVendorBench(t, map[string]string{}, map[string]string{"cpu.priority": "0\n"})
		b.put(t, filepath.Join(b.root, "be/a/cpu.weight"), "39\n")
		b.snapshot(t)
		do(t, b.set(t, mark("be/a"), node.IdentityBE))
		if got := b.file(t, filepath.Join(b.root, "be/a/cpu.idle")); got != "1" {
			t.Fatalf("cpu.idle is %s beside the mark", got)
		}
		b.put(t, filepath.Join(b.root, "be/a/cpu.weight"), "100\n") // the kernel does the same
		return b
	}
	check := func(t *testing.T, b *bench) {
		t.Helper()
		idle, now := b.file(t, filepath.Join(b.root, "be/a/cpu.idle")), b.file(t, filepath.Join(b.root, "be/a/cpu.weight"))
		if idle != "0" || now != "39" || !b.journaled(t).Empty() {
			t.Errorf("cpu.idle %s, cpu.weight %s, want 0 and 39; journaled %v", idle, now, b.journaled(t))
		}
	}
	t.Run("by release", func(t *testing.T) {
		b := scene(t)
		if _, shown := b.snapshot(t).Knobs.Before[weight]; shown {
			t.Error("the weight would be given back before the mark is")
		}
		do(t, b.release(t, mark("be/a")))
		if _, shown := b.snapshot(t).Knobs.Before[weight]; !shown {
			t.Fatal("it does not show that the weight must be released")
		}
		do(t, b.release(t, weight))
		check(t, b)
	})
	t.Run("by restore", func(t *testing.T) {
		b := scene(t)
		_, err := b.Restore(t.Context())
		do(t, err)
		check(t, b)
	})
}

// TestRoundedMarkShowsWhatWasAsked uses a kernel that rounds marks. The
// snapshot must show the value that was written, because otherwise every tick
// would write it again.
func TestRoundedMarkShowsWhatWasAsked(t *testing.T) {
	b := newVendorBench(t, map[string]string{}, map[string]string{"cpu.priority": "0\n"})
	b.snapshot(t)
	do(t, b.set(t, mark("ls"), node.IdentityExpels))
	if got := b.snapshot(t).Knobs.Now[mark("ls")]; got != node.IdentityExpels || b.file(t, filepath.Join(b.root, "ls/cpu.priority")) != "1" {
		t.Errorf("shown as %v, the file is %s", got, b.file(t, filepath.Join(b.root, "ls/cpu.priority")))
	}
	b.put(t, filepath.Join(b.root, "ls/cpu.priority"), "-1\n")
	b.Reread()
	if got := b.snapshot(t).Knobs.Now[mark("ls")]; got != node.IdentityBE {
		t.Errorf("another component's value is shown as %v", got)
	}
}

func TestEndingWorkLosesItsMarks(t *testing.T) {
	b := newVendorBench(t, map[string]string{}, map[string]string{"cpu.bvt_warp_ns": "0\n"})
	b.snapshot(t)
	do(t, b.set(t, mark("be"), node.IdentityBE), b.set(t, mark("be/a"), node.IdentityBE))
	do(t, b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.AskedToEnd))
	if got := b.file(t, filepath.Join(b.root, "be/a/cpu.bvt_warp_ns")); got != "0" {
		t.Errorf("the mark of the ending group is %s, want 0", got)
	}
	if got := b.file(t, filepath.Join(b.root, "be/cpu.bvt_warp_ns")); got != "-1" {
		t.Errorf("the mark of the group above is %s, want -1", got)
	}
	b.Reread()
	if got := b.snapshot(t).Knobs.Now[mark("be/a")]; got != node.IdentityBE {
		t.Errorf("shown as %v: it would be marked again while it ends", got)
	}
}

func TestKernelWithoutMarksShowsNone(t *testing.T) {
	b := newBench(t, true)
	for k := range b.snapshot(t).Knobs.Now {
		if k.File == node.FileIdentity {
			t.Errorf("%v is shown", k)
		}
	}
}
