package host

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// A sleepersBench counts the CPU time of its groups.
type sleepersBench struct {
	*bench
	later time.Duration
}

func newSleepersBench(t *testing.T) *sleepersBench {
	b := &sleepersBench{bench: newBench(t, true)}
	for _, p := range []string{"be/a", "be/b", "ls"} {
		b.setRunTime(t, p, 0)
	}
	return b
}

// setRunTime sets how much CPU time a group has used since it was made.
func (b *sleepersBench) setRunTime(t *testing.T, p string, used time.Duration) {
	t.Helper()
	b.put(t, filepath.Join(b.root, p, "cpu.stat"), fmt.Sprintf("usage_usec %d\n", used.Microseconds()))
}

// snapshotLater waits so long that all groups must be checked again. Then
// it takes a snapshot and guards other work. It returns the value of the policy
// of the group be.
func (b *sleepersBench) snapshotLater(t *testing.T) node.Value {
	t.Helper()
	s, err := b.Snapshot(t.Context())
	do(t, err)
	b.later += reread.Unchanged + time.Second
	s.At = s.At.Add(b.later)
	touches, err := b.changes.ReleasableKnobs()
	do(t, err)
	b.isolation.Fill(&s, touches)
	b.guard(t, b.later)
	return s.Knobs.Now[policyOf("be")]
}

// TestThreadsOfSleepersAreNotListedAgain moves a thread into a group. The
// thread must be converted only after the group has run.
func TestThreadsOfSleepersAreNotListedAgain(t *testing.T) {
	b := newSleepersBench(t)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if got := b.snapshotLater(t); got != node.ThreadsBE {
		t.Fatalf("after the write, threads are %v", got)
	}
	b.thread(t, "be/b", task.Normal)
	if got := b.snapshotLater(t); got != node.ThreadsBE {
		t.Errorf("the threads of a group that slept were listed: %v", got)
	}
	b.setRunTime(t, "be/a", time.Millisecond)
	if got := b.snapshotLater(t); got != node.ThreadsBE {
		t.Errorf("the threads of a group that slept were listed with those of the group that ran: %v", got)
	}
	b.setRunTime(t, "be/b", time.Millisecond)
	if got := b.snapshotLater(t); got != node.ThreadsMixed {
		t.Errorf("after the group ran, its threads are %v, want %v", got, node.ThreadsMixed)
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if got := b.snapshotLater(t); got != node.ThreadsBE {
		t.Errorf("after a write to groups that slept, threads are %v", got)
	}
}

// TestAllThreadsAreListedAfterAChangeOfGroups checks that all threads are
// listed after an event about cgroups, because threads may have moved to other
// groups.
func TestAllThreadsAreListedAfterAChangeOfGroups(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"a group came or went": func(b *bench) { b.isolation.Expire() },
		"a class changed": func(b *bench) {
			b.Manage(node.Workload{ID: "web", Class: node.LSR, Cgroup: "ls", ContentionRoot: "ls"})
		},
	} {
		b := newSleepersBench(t)
		b.thread(t, "be/a", task.Normal)
		b.snapshot(t)
		do(t, b.set(t, policyOf("be"), node.ThreadsBE))
		b.snapshotLater(t)
		b.thread(t, "be/b", task.Normal)
		change(b.bench)
		if got := b.snapshotLater(t); got != node.ThreadsMixed {
			t.Errorf("%s: threads are %v, want %v", name, got, node.ThreadsMixed)
		}
	}
}

// TestOtherWorkIsCheckedAfterItRan moves a best-effort thread to a service.
// Tenon must find it after the thread has run. Before it runs, it cannot harm
// the service.
func TestOtherWorkIsCheckedAfterItRan(t *testing.T) {
	b := newSleepersBench(t)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	b.snapshotLater(t)
	moved := b.thread(t, "ls", task.Ext)
	if b.snapshotLater(t); b.ext.policy(moved) != task.Ext {
		t.Error("the threads of a service that slept were listed")
	}
	b.setRunTime(t, "ls", time.Millisecond)
	if b.snapshotLater(t); b.ext.policy(moved) != task.Normal {
		t.Error("a thread of a service that ran kept the policy of best-effort work")
	}
}
