package host

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/isolation"
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

// snapshotLater takes a snapshot at a time when all groups must be checked
// again, and calls Guard. It returns the value of the policy of the group be.
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

// TestAChangeOfGroupsListsTheirThreads moves a thread into a group that sleeps,
// and then changes something. It checks whether the threads of all groups are
// listed, or only those of the changed groups. To list all is by far the most
// expensive part of such a change on a node with thousands of groups.
func TestAChangeOfGroupsListsTheirThreads(t *testing.T) {
	job := func(id node.WorkloadID, class node.Class) node.Workload {
		return node.Workload{ID: id, Class: class, Cgroup: node.CgroupPath("be").Join(string(id)), ContentionRoot: "be"}
	}
	web := node.Workload{ID: "web", Class: node.LS, Cgroup: "ls", ContentionRoot: "ls"}
	come := func(b *sleepersBench, policy task.Policy) {
		b.group(t, "be/c")
		b.thread(t, "be/c", policy)
		b.ManageOnly([]node.Workload{job("a", node.BE), job("b", node.BE), job("c", node.BE), web})
	}
	for name, tc := range map[string]struct {
		change func(b *sleepersBench)
		want   node.Value
	}{
		"the values may be another process's": {func(b *sleepersBench) { b.isolation.Expire() }, node.ThreadsMixed},
		"its class changed twice": {func(b *sleepersBench) {
			b.Manage(job("b", node.LS))
			b.snapshotLater(t)
			b.Manage(job("b", node.BE))
		}, node.ThreadsMixed},
		"the class of another group changed": {func(b *sleepersBench) {
			b.Manage(node.Workload{ID: "web", Class: node.LSR, Cgroup: "ls", ContentionRoot: "ls"})
		}, node.ThreadsBE},
		"a group of no workload came":       {func(b *sleepersBench) { isolation.CgroupsChanged(b.isolation) }, node.ThreadsBE},
		"a group with converted work came":  {func(b *sleepersBench) { come(b, task.Ext) }, node.ThreadsBE},
		"a group with usual threads came":   {func(b *sleepersBench) { come(b, task.Normal) }, node.ThreadsMixed},
		"a group within a workload came":    {func(b *sleepersBench) { within(t, b, "be/a") }, node.ThreadsMixed},
		"a group beside the workloads came": {func(b *sleepersBench) { within(t, b, "be") }, node.ThreadsMixed},
		"a group went": {func(b *sleepersBench) {
			b.ManageOnly([]node.Workload{job("b", node.BE), web})
		}, node.ThreadsBE},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSleepersBench(t)
			b.setRunTime(t, "be", 0)
			b.thread(t, "be/a", task.Normal)
			b.snapshot(t)
			do(t, b.set(t, policyOf("be"), node.ThreadsBE))
			b.snapshotLater(t)
			b.thread(t, "be/b", task.Normal)
			tc.change(b)
			if got := b.snapshotLater(t); got != tc.want {
				t.Errorf("threads are %v, want %v", got, tc.want)
			}
		})
	}
}

// within makes a group below another one. The new group has a thread that has
// run.
func within(t *testing.T, b *sleepersBench, p string) {
	t.Helper()
	b.group(t, p+"/inner")
	b.thread(t, p+"/inner", task.Normal)
	for _, q := range []string{"be", p} {
		b.setRunTime(t, q, time.Millisecond)
	}
	isolation.CgroupsChanged(b.isolation)
}

// TestOneCounterTellsThatNoThreadRan lets a group run. Its parent has the knob,
// and the test does not change the parent's counter. (The real kernel counts
// CPU time in both.) Tenon must trust the counter of the parent: if it finds
// the threads of the group, it has also read the group's counter.
func TestOneCounterTellsThatNoThreadRan(t *testing.T) {
	b := newSleepersBench(t)
	b.setRunTime(t, "be", time.Second)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	b.snapshotLater(t)
	b.thread(t, "be/b", task.Normal)
	b.setRunTime(t, "be/b", time.Millisecond)
	if got := b.snapshotLater(t); got != node.ThreadsBE {
		t.Errorf("threads are %v, although nothing has run", got)
	}
	b.setRunTime(t, "be", 2*time.Second)
	b.setRunTime(t, "be/b", 0) // another group ran
	if got := b.snapshotLater(t); got != node.ThreadsBE {
		t.Errorf("threads are %v: those of groups that slept were listed", got)
	}
	b.setRunTime(t, "be", 3*time.Second)
	b.setRunTime(t, "be/b", time.Millisecond)
	if got := b.snapshotLater(t); got != node.ThreadsMixed {
		t.Errorf("after a thread ran, threads are %v, want %v", got, node.ThreadsMixed)
	}
}

// TestWhoRanDuringTheSnapshotIsFound lets a thread run in the middle of a
// snapshot: after the counters are read, and before threads are counted.
func TestWhoRanDuringTheSnapshotIsFound(t *testing.T) {
	b := newSleepersBench(t)
	b.setRunTime(t, "be", time.Second)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	b.snapshotLater(t)
	s := b.snapshot(t)
	b.thread(t, "be/b", task.Normal)
	b.setRunTime(t, "be", 2*time.Second)
	b.setRunTime(t, "be/b", time.Second)
	b.later += reread.Unchanged
	s.At = s.At.Add(b.later)
	touches, err := b.changes.ReleasableKnobs()
	do(t, err)
	b.isolation.Fill(&s, touches)
	if got := b.snapshotLater(t); got != node.ThreadsMixed {
		t.Errorf("threads are %v, want %v", got, node.ThreadsMixed)
	}
}

// TestOtherWorkIsCheckedAfterItRan moves a best-effort thread to a service.
// Tenon must find the thread after it has run. Before that, the thread cannot
// harm the service.
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
