package host

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/model/node"
)

func TestStrayIsConvertedBetweenTurns(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded), b.set(t, policyOf("be"), node.ThreadsBE))
	b.snapshot(t)
	stray, web, realtime := b.thread(t, "be/a", task.Normal), b.thread(t, "ls", task.Normal), b.thread(t, "be/a", task.FIFO)
	b.procOf(t, map[int]string{stray: "be/a", web: "ls", realtime: "be/a"})
	for _, e := range []scx.Stray{{TID: web}, {TID: realtime, Policy: int(task.FIFO)}, {TID: stray}} {
		b.ext.now.events <- e
	}
	waitUntil(t, "it is converted", func() bool { return b.ext.policy(stray) == task.Ext })
	if b.ext.policy(web) != task.Normal || b.ext.policy(realtime) != task.FIFO {
		t.Errorf("others are %v and %v now", b.ext.policy(web), b.ext.policy(realtime))
	}
	waitUntil(t, "it is counted", func() bool { st := b.isolation.Status(); return st.Strays == 3 && st.Converted == 1 })
}

func TestALongWaitDemotesForAWhile(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	waiter := b.thread(t, "be/a", task.Normal)
	do(t, b.set(t, bescheduler.Knob, loaded), b.set(t, policyOf("be"), node.ThreadsBE))
	b.procOf(t, map[int]string{waiter: "be/a"})
	b.ext.now.events <- scx.LongWait{TID: waiter, Wait: 8 * time.Second}
	waitUntil(t, "it is spilled", func() bool { return b.ext.policy(waiter) == task.Normal })
	b.isolation.Expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
		t.Errorf("shown as %v: it would be taken back at once", got)
	}
	b.ext.now.events <- scx.Stray{TID: waiter} // the thread left SCHED_EXT on purpose, so it must not be converted
	waitUntil(t, "the stray is counted", func() bool { return b.isolation.Status().Strays == 1 })
	if st := b.isolation.Status(); b.ext.policy(waiter) != task.Normal || st.Demotions != 1 || st.Demoted != 1 {
		t.Errorf("policy %v, status %+v", b.ext.policy(waiter), st)
	}
	do(t, b.ext.now.do(func() { b.ext.now.crowded = true }))
	b.guard(t, demotedFor)
	if st := b.isolation.Status(); b.ext.policy(waiter) != task.Normal || st.Demoted != 1 {
		t.Errorf("after its time, but without room: policy %v, status %+v", b.ext.policy(waiter), st)
	}
	do(t, b.ext.now.do(func() { b.ext.now.crowded = false }))
	b.guard(t, demotedFor)
	if st := b.isolation.Status(); b.ext.policy(waiter) != task.Ext || st.Demoted != 0 {
		t.Errorf("after its time: policy %v, status %+v", b.ext.policy(waiter), st)
	}
}

// TestAKnobBelowAnExemptGroupExemptsItToo checks groups inside an exempt group
// that have their own knobs. They must be exempt, too.
func TestAKnobBelowAnExemptGroupExemptsItToo(t *testing.T) {
	b := newBench(t, true)
	tid := b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be/a"), node.ThreadsBE))
	do(t, b.set(t, node.Knob{Cgroup: "be", File: node.FileRun}, node.Frozen))
	do(t, b.set(t, policyOf("be/a"), node.ThreadsBE))
	if p := b.ext.policy(tid); p != task.Normal {
		t.Errorf("a frozen thread is %v", p)
	}
}
