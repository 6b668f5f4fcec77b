package host

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// TestAnotherHostReleasesTheThreadsOfOneGroup moves the threads of one cgroup
// out of sched_ext through another host, as the watchdog does when tenond
// hangs. The threads of other cgroups must stay in sched_ext. When the first
// host reads the knob again, its value must show the moved threads.
func TestAnotherHostReleasesTheThreadsOfOneGroup(t *testing.T) {
	b := newBench(t, true)
	in, beside := b.thread(t, "be/a", task.Normal), b.thread(t, "ls", task.Ext)
	fifo := b.thread(t, "be/b", task.FIFO)
	if err := b.set(t, policyOf("be"), node.ThreadsBE); err != nil {
		t.Fatal(err)
	}
	b.snapshot(t)
	b.ext.set(beside, task.Ext) // the snapshot has freed it
	other := isolation.New(isolation.Options{Tree: b.tree, Kernel: isolation.Kernel{Policies: b.ext}})
	if n, err := other.ReleaseExt("be"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if b.ext.policy(in) != task.Normal || b.ext.policy(beside) != task.Ext || b.ext.policy(fifo) != task.FIFO {
		t.Errorf("in the group %v, beside it %v, real-time %v", b.ext.policy(in), b.ext.policy(beside), b.ext.policy(fifo))
	}
	if n, err := other.ReleaseExt("gone"); n != 0 || err != nil {
		t.Errorf("a group that is gone: %d, %v", n, err)
	}
	b.isolation.Expire()
	if v := b.snapshot(t).Knobs.Now[policyOf("be")]; v != node.ThreadsNormal {
		t.Errorf("its owner sees %v", v)
	}
}

// TestASchedulerIsTendedBetweenSnapshots takes a snapshot only once a minute.
// Between the snapshots, the scheduler must get heartbeats, and a demoted
// thread must return in time.
func TestASchedulerIsTendedBetweenSnapshots(t *testing.T) {
	b := newBench(t, true)
	if err := b.isolation.Tend(); err != nil {
		t.Errorf("without a scheduler: %v", err)
	}
	tid := b.thread(t, "be/a", task.Normal)
	b.procOf(t, map[int]string{tid: "be/a"})
	for _, k := range []struct {
		knob node.Knob
		v    node.Value
	}{{bescheduler.Knob, node.Scheduler{Loaded: true}}, {policyOf("be"), node.ThreadsBE}} {
		if err := b.set(t, k.knob, k.v); err != nil {
			t.Fatal(err)
		}
	}
	b.snapshot(t)
	b.ext.now.events <- scx.LongWait{TID: tid, Wait: 8 * time.Second}
	waitUntil(t, "it is demoted", func() bool { return b.ext.policy(tid) == task.Normal })
	before := b.ext.now.beats
	if err := b.isolation.Tend(); err != nil || b.ext.now.beats != before+1 {
		t.Errorf("%v, %d signs of life", err, b.ext.now.beats-before)
	}
	b.guard(t, demotedFor)
	if p := b.ext.policy(tid); p != task.Ext {
		t.Errorf("a thread whose time is over is still %v", p)
	}
	_ = b.ext.now.Close()
	if err := b.isolation.Tend(); err != nil {
		t.Errorf("follow reports the end of a scheduler, not this: %v", err)
	}
}

func TestASchedulerIsTakenDownWithoutItsKnob(t *testing.T) {
	b := newBench(t, true)
	if was, err := b.isolation.Unload(); was || err != nil {
		t.Errorf("there was none: %v, %v", was, err)
	}
	if err := b.set(t, bescheduler.Knob, node.Scheduler{Loaded: true}); err != nil {
		t.Fatal(err)
	}
	if was, err := b.isolation.Unload(); !was || err != nil || !b.ext.now.closed {
		t.Errorf("%v, %v, closed %v", was, err, b.ext.now.closed)
	}
	s := b.snapshot(t)
	if v := s.Knobs.Now[bescheduler.Knob]; v != node.Value(node.Scheduler{}) {
		t.Errorf("the snapshot shows %v", v)
	}
	if len(s.Isolation.Failures) != 0 {
		t.Errorf("that is a fall: %v", s.Isolation.Failures)
	}
}
