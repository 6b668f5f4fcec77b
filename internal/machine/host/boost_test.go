package host

import (
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/model/node"
)

func weightOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUWeight} }

// snapshotAfter returns a snapshot at a time when every exemption of at most
// the length d has ended.
func (b *bench) snapshotAfter(t *testing.T, d time.Duration) node.Snapshot {
	t.Helper()
	b.isolation.Exempt().EndOver(b.now().Add(d))
	b.isolation.Expire()
	return b.snapshot(t)
}

// TestKilledWorkIsNotIdle checks that Tenon clears cpu.idle of a killed group.
// Beside busy services, an idle group gets so little CPU that it would take
// long to end.
func TestKilledWorkIsNotIdle(t *testing.T) {
	b := newBench(t, true)
	idle, weight := filepath.Join(b.root, "be/a/cpu.idle"), filepath.Join(b.root, "be/a/cpu.weight")
	b.put(t, weight, "39\n")
	b.snapshot(t)
	do(t, b.set(t, weightOf("be"), node.CPUWeight{Idle: true}), b.set(t, weightOf("be/a"), node.CPUWeight{Idle: true}))
	run := node.Knob{Cgroup: "be/a", File: node.FileRun}
	do(t, b.set(t, run, node.AskedToEnd))
	if got := b.file(t, idle); got != "1" {
		t.Errorf("asked to end, which it may never do, cpu.idle is %s", got)
	}
	do(t, b.set(t, run, node.Ended))
	if b.file(t, idle) != "0" || b.file(t, weight) != "39" {
		t.Errorf("killed: cpu.idle %s, cpu.weight %s, want 0 and 39 as before", b.file(t, idle), b.file(t, weight))
	}
	if got := b.file(t, filepath.Join(b.root, "be/cpu.idle")); got != "1" {
		t.Errorf("the group above, of others too, has cpu.idle %s", got)
	}
	b.Reread()
	if got := b.snapshotAfter(t, isolation.MaxExempt-time.Second).Knobs.Now[weightOf("be/a")]; got != node.Value(node.CPUWeight{Idle: true}) {
		t.Errorf("shown as %v: it would be idle again in the next turn", got)
	}
	if got := b.snapshotAfter(t, isolation.MaxExempt).Knobs.Now[weightOf("be/a")]; got == node.Value(node.CPUWeight{Idle: true}) {
		t.Error("what does not die stays as other work is")
	}
}

func TestWeightOfKilledWorkIsGivenBack(t *testing.T) {
	for name, give := range map[string]func(t *testing.T, b *bench){
		"by release": func(t *testing.T, b *bench) { do(t, b.release(t, weightOf("be/a"))) },
		"by restore": func(t *testing.T, b *bench) { _, err := b.Restore(t.Context()); do(t, err) },
	} {
		b := newBench(t, true)
		b.put(t, filepath.Join(b.root, "be/a/cpu.weight"), "39\n")
		b.snapshot(t)
		do(t, b.set(t, weightOf("be/a"), node.CPUWeight{Idle: true}), b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.Ended))
		give(t, b)
		if got := b.file(t, filepath.Join(b.root, "be/a/cpu.weight")); got != "39" || !b.journaled(t).Empty() {
			t.Errorf("%s: cpu.weight %s, journaled %v", name, got, b.journaled(t))
		}
	}
}

// TestAGroupThatItsOwnerMadeIdleStaysIdle kills a group that its owner, and not
// Tenon, made idle. The group must stay idle.
func TestAGroupThatItsOwnerMadeIdleStaysIdle(t *testing.T) {
	b := newBench(t, true)
	b.put(t, filepath.Join(b.root, "be/a/cpu.idle"), "1\n")
	b.snapshot(t)
	do(t, b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.Ended))
	if got := b.file(t, filepath.Join(b.root, "be/a/cpu.idle")); got != "1" {
		t.Errorf("cpu.idle is %s", got)
	}
}

// TestWorkThatWasAskedToEndAndStaysIsBestEffortAgain asks work to end, and the
// work continues. It must become best-effort again, because Tenon does not
// learn that an eviction was cancelled.
func TestWorkThatWasAskedToEndAndStaysIsBestEffortAgain(t *testing.T) {
	t.Run("threads", func(t *testing.T) {
		b := newBench(t, true)
		tid := b.thread(t, "be/a", task.Normal)
		b.thread(t, "be/b", task.Normal)
		b.snapshot(t)
		do(t, b.set(t, policyOf("be"), node.ThreadsBE), b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.AskedToEnd))
		if got := b.snapshotAfter(t, isolation.MaxExempt-time.Second).Knobs.Now[policyOf("be")]; got != node.ThreadsBE || b.ext.policy(tid) != task.Normal {
			t.Errorf("while it may end: shown as %v, policy %v", got, b.ext.policy(tid))
		}
		if got := b.snapshotAfter(t, isolation.MaxExempt).Knobs.Now[policyOf("be")]; got != node.ThreadsMixed {
			t.Errorf("afterwards shown as %v, want mixed", got)
		}
	})
	t.Run("marks", func(t *testing.T) {
		b := newVendorBench(t, nil, map[string]string{"cpu.bvt_warp_ns": "0\n"})
		b.snapshot(t)
		do(t, b.set(t, mark("be/a"), node.IdentityBE), b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.AskedToEnd))
		if got := b.snapshotAfter(t, isolation.MaxExempt-time.Second).Knobs.Now[mark("be/a")]; got != node.IdentityBE {
			t.Errorf("while it may end: shown as %v", got)
		}
		if got := b.snapshotAfter(t, isolation.MaxExempt).Knobs.Now[mark("be/a")]; got != node.IdentityNone {
			t.Errorf("afterwards shown as %v: it would stay without a mark", got)
		}
	})
	t.Run("not what is frozen", func(t *testing.T) {
		b := newBench(t, true)
		b.thread(t, "be/a", task.Normal)
		b.snapshot(t)
		do(t, b.set(t, policyOf("be"), node.ThreadsBE), b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.Frozen))
		if got := b.snapshotAfter(t, 10*isolation.MaxExempt).Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
			t.Errorf("shown as %v: it would be converted while frozen", got)
		}
	})
}
