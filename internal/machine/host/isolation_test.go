package host

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

var loaded = node.Scheduler{Loaded: true, Siblings: true, Hold: 200 * time.Microsecond, Headroom: node.SchedulerHeadroom, Gentle: "LSR"}

func TestThreadsOfAGroupAreConvertedAndRestored(t *testing.T) {
	b := newBench(t, true)
	meet, a, late := b.thread(t, "be", task.Normal), b.thread(t, "be/a", task.Batch), 0
	realtime, web := b.thread(t, "be/b", task.FIFO), b.thread(t, "ls", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if got := []task.Policy{b.ext.policy(meet), b.ext.policy(a), b.ext.policy(realtime), b.ext.policy(web)}; !slices.Equal(got, []task.Policy{task.Ext, task.Ext, task.FIFO, task.Normal}) {
		t.Errorf("policies %v, want those of BE converted, and no others", got)
	}
	s := b.snapshot(t)
	if got := s.Knobs.Now[policyOf("be")]; got != node.ThreadsBE || s.Knobs.Before[policyOf("be")] != node.ThreadsNormal {
		t.Errorf("shown as %v, before %v", got, s.Knobs.Before[policyOf("be")])
	}
	if n := b.isolation.Status().Realtime; n != 1 {
		t.Errorf("%d real-time threads are reported, want 1", n)
	}

	late = b.thread(t, "be/b", task.Normal)
	b.isolation.Expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsMixed {
		t.Errorf("with a stray it shows %v, want mixed", got)
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if b.ext.policy(late) != task.Ext {
		t.Error("a stray was not converted")
	}
	if st := b.isolation.Status(); st.Strays != 1 || st.Converted != 1 {
		t.Errorf("%d strays and %d converted are reported, want 1 and 1", st.Strays, st.Converted)
	}

	do(t, b.Apply(t.Context(), plan.Step{Knob: policyOf("be"), To: node.ThreadsNormal, Release: true}))
	for _, tid := range []int{meet, a, late} {
		if p := b.ext.policy(tid); p != task.Normal {
			t.Errorf("thread %d is %v after the release", tid, p)
		}
	}
	if st := b.journaled(t); !st.Empty() {
		t.Errorf("left to restore: %v", st)
	}
	if _, shown := b.snapshot(t).Knobs.Now[policyOf("be")]; shown {
		t.Error("a knob that Tenon has not set is read")
	}
}

// TestRestoreAfterADeadAgent restores in another process. This process finds
// only the journal, and threads that still have the policy.
func TestRestoreAfterADeadAgent(t *testing.T) {
	b := newBench(t, true)
	a, inherited := b.thread(t, "be/a", task.Normal), 0
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded), b.set(t, policyOf("be"), node.ThreadsBE))
	inherited = b.thread(t, "be/b", task.Ext)

	b.open(t, false)
	r, err := b.Restore(t.Context())
	do(t, err)
	if b.ext.policy(a) != task.Normal || b.ext.policy(inherited) != task.Normal {
		t.Errorf("policies %v and %v after the restore", b.ext.policy(a), b.ext.policy(inherited))
	}
	if len(r.Left) > 0 || !b.journaled(t).Empty() {
		t.Errorf("left: %v, %v", r, b.journaled(t))
	}
}

func TestEmptyGroupIsWhatItWasMade(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
		t.Errorf("shown as %v: every turn would write it again", got)
	}
}

func TestOnlyBestEffortWorkIsConverted(t *testing.T) {
	b := newBench(t, true)
	b.Manage(node.Workload{ID: "inner", Class: node.LS, Cgroup: "be/b", ContentionRoot: "be/b"})
	b.Forget("b")
	web, inner, a := b.thread(t, "ls", task.Normal), b.thread(t, "be/b", task.Normal), b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	if err := b.set(t, policyOf("ls"), node.ThreadsBE); !errors.Is(err, isolation.ErrNotBE) {
		t.Errorf("latency-sensitive work: %v, want a refusal", err)
	}
	if err := b.set(t, policyOf(""), node.ThreadsBE); !errors.Is(err, isolation.ErrOwn) {
		t.Errorf("the whole machine: %v, want a refusal", err)
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if b.ext.policy(web) != task.Normal || b.ext.policy(inner) != task.Normal || b.ext.policy(a) != task.Ext {
		t.Errorf("policies %v %v %v, want the last converted only", b.ext.policy(web), b.ext.policy(inner), b.ext.policy(a))
	}
	if len(b.snapshot(t).Isolation.Failures) > 0 {
		t.Error("a refusal of ours counts as a fall")
	}
}

// TestWorkOfAnotherClassLosesThePolicy changes the class of best-effort work.
// The work must lose the policy. Otherwise it would run below all other work.
func TestWorkOfAnotherClassLosesThePolicy(t *testing.T) {
	b := newBench(t, true)
	promoted, stays := b.thread(t, "be/b", task.Normal), b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	child := b.thread(t, "ls", task.Ext) // a best-effort thread has started it
	b.Manage(node.Workload{ID: "b", Class: node.LS, Cgroup: "be/b", ContentionRoot: "be/b"})
	s := b.snapshot(t)
	if b.ext.policy(promoted) != task.Normal || b.ext.policy(child) != task.Normal || b.ext.policy(stays) != task.Ext {
		t.Errorf("policies %v %v %v, want only the last kept", b.ext.policy(promoted), b.ext.policy(child), b.ext.policy(stays))
	}
	if got := s.Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
		t.Errorf("shown as %v", got)
	}
	late := b.thread(t, "ls", task.Ext)
	b.guard(t, reread.Unchanged+time.Second)
	if p := b.ext.policy(late); p != task.Normal {
		t.Errorf("one that came later is %v after its turn", p)
	}
}

// TestAThreadThatKeepsThePolicyIsReported has a thread of a service with the policy
// of best-effort threads, which the kernel refuses to change. The loop must hear of
// it once, and the next ticks must try again, because such a thread may never run.
func TestAThreadThatKeepsThePolicyIsReported(t *testing.T) {
	b := newBench(t, true)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	b.snapshot(t)
	kept := b.thread(t, "ls", task.Ext)
	b.ext.keeps = errBoom
	b.guard(t, reread.Unchanged+time.Second)
	select {
	case e := <-b.isolation.Events():
		if !strings.Contains(e.Text, "ls") || !strings.Contains(e.Text, errBoom.Error()) {
			t.Errorf("reported as %q", e.Text)
		}
	default:
		t.Error("no event")
	}
	b.guard(t, reread.Unchanged+time.Second)
	if n := len(b.isolation.Events()); n > 0 {
		t.Errorf("reported again: %v", <-b.isolation.Events())
	}
	b.ext.keeps = nil
	b.guard(t, reread.Unchanged+time.Second)
	if p := b.ext.policy(kept); p != task.Normal {
		t.Errorf("in the next tick it is %v", p)
	}
}

// TestThePolicyOfOtherWorkStays gives other work the policy while Tenon uses
// only long slices. Tenon must not change it, because the policy must come from
// another component.
func TestThePolicyOfOtherWorkStays(t *testing.T) {
	b := newBench(t, true)
	slice := node.Knob{Cgroup: "be", File: node.FileSlice}
	theirs := b.thread(t, "ls", task.Ext)
	s := b.snapshot(t)
	touches := map[node.Knob]journal.Touch{slice: {Before: node.ThreadsNormal, Written: node.ThreadsBE}}
	b.isolation.Fill(&s, touches)
	do(t, b.Guard())
	if p := b.ext.policy(theirs); p != task.Ext {
		t.Errorf("a thread of a scheduler that is not ours is %v", p)
	}
	touches[policyOf("be")] = touches[slice]
	b.isolation.Fill(&s, touches)
	b.guard(t, reread.Unchanged+time.Second)
	if p := b.ext.policy(theirs); p != task.Normal {
		t.Errorf("with the policy in use it is %v", p)
	}
}

// TestWorkIsWatchedForAWhileAfterTheMechanism creates a thread while a
// mechanism is being released. The thread copies the attributes of its parent,
// so Tenon must check again later.
func TestWorkIsWatchedForAWhileAfterTheMechanism(t *testing.T) {
	b := newBench(t, true)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	b.snapshot(t)
	do(t, b.release(t, policyOf("be")))
	be, ls := b.thread(t, "be/a", task.Ext), b.thread(t, "ls", task.Ext)
	s := b.snapshot(t)
	b.guard(t, reread.Unchanged+time.Second)
	if b.ext.policy(be) != task.Normal || b.ext.policy(ls) != task.Normal {
		t.Errorf("policies %v and %v after the mechanism was given up", b.ext.policy(be), b.ext.policy(ls))
	}
	b.put(t, filepath.Join(b.fs.Sys, "kernel/sched_ext/state"), "enabled\n")
	b.put(t, filepath.Join(b.fs.Sys, "kernel/sched_ext/root/ops"), "theirs\n")
	s = b.snapshot(t)
	s.At = s.At.Add(reread.Changed)
	b.isolation.Fill(&s, nil)
	b.ext.set(ls, task.Ext)
	b.guard(t, reread.Unchanged+time.Second)
	if b.ext.policy(ls) != task.Ext {
		t.Error("a thread of another component's scheduler lost its policy")
	}
}

// TestNewWorkInPlaceOfWhatEndedIsNotExempt restarts a unit whose cgroup was
// exempt. The new cgroup has the same name, but must not be exempt.
func TestNewWorkInPlaceOfWhatEndedIsNotExempt(t *testing.T) {
	b := newBench(t, true)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	do(t, b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.AskedToEnd))
	next := b.thread(t, "be/a", task.Normal)
	b.isolation.Expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
		t.Fatalf("shown as %v while it ends", got)
	}
	b.put(t, filepath.Join(b.root, "be/a/cgroup.events"), "populated 0\nfrozen 0\n")
	b.snapshot(t)
	b.put(t, filepath.Join(b.root, "be/a/cgroup.events"), "populated 1\nfrozen 0\n")
	b.isolation.Expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got == node.ThreadsBE {
		t.Errorf("thread %d is not looked at", next)
	}
}

func TestSchedulerIsLoadedChangedAndUnloaded(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded), b.set(t, policyOf("be"), node.ThreadsBE))
	if got := b.snapshot(t).Knobs.Now[bescheduler.Knob]; got != node.Value(loaded) {
		t.Errorf("shown as %v, want %v", got, loaded)
	}
	s := b.ext.now
	if p := s.params; !p.SMTRule || p.Hold != 200*time.Microsecond || p.Headroom != scx.DefaultHeadroom || len(b.ext.loads[0].Topology) == 0 || b.ext.loads[0].CgroupVersion != 2 {
		t.Errorf("loaded with %+v", b.ext.loads[0])
	}
	if s.beats == 0 {
		t.Error("no heartbeat")
	}
	strict := loaded
	strict.Gentle, strict.Hold = "", 0
	do(t, b.set(t, node.Knob{File: node.FileSchedulerCap}, node.SchedulerCap{Most: 1500}), b.set(t, bescheduler.Knob, strict))
	if s.params.Hold >= 0 || s.params.Cap != 1500 {
		t.Errorf("after a change: %+v", s.params)
	}
	if n := b.ext.loaded(); n != 1 {
		t.Errorf("a change of parameters loaded it %d times", n)
	}
	if st := b.isolation.Status(); st.Loads != 1 || st.Scheduler == nil || st.Scheduler.Expels != 7 || !st.Scheduler.Running {
		t.Errorf("status %+v", st)
	}
	do(t, b.release(t, bescheduler.Knob))
	if st := b.isolation.Status(); !s.closed || st.Exits[node.ExitUnload] != 1 || st.Scheduler.Running || len(b.snapshot(t).Isolation.Failures) > 0 {
		t.Errorf("closed %t, status %+v, falls %v", s.closed, st, b.snapshot(t).Isolation.Failures)
	}
}

func TestEndOfTheSchedulerIsAFall(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded))
	b.ext.now.events <- scx.Exited{Exit: scx.Exit{Kind: scx.ExitErrorStall, Reason: "runnable task stall", Message: "sh[12] failed to run for 30.1s"}}
	select {
	case e := <-b.isolation.Events():
		if !strings.Contains(e.Text, "sched_ext failed") {
			t.Errorf("event %q", e.Text)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the loop was not woken")
	}
	s := b.snapshot(t)
	want := []node.Failure{{Mechanism: node.MechanismSchedExt, Why: "the kernel ended the scheduler: runnable task stall: sh[12] failed to run for 30.1s"}}
	if diff := cmp.Diff(want, s.Isolation.Failures, cmpopts.IgnoreFields(node.Failure{}, "At")); diff != "" {
		t.Error(diff)
	}
	if age := s.At.Sub(s.Isolation.Failures[0].At); age < 0 || age > time.Minute {
		t.Errorf("it fell %v ago by the clock of the snapshot", age)
	}
	if got := s.Knobs.Now[bescheduler.Knob]; got != node.Value(node.Scheduler{}) {
		t.Errorf("shown as %v, want none", got)
	}
	if st := b.isolation.Status(); st.Exits[node.ExitStall] != 1 || st.LastExit.Kind != node.ExitStall || st.Scheduler == nil || st.Scheduler.Running {
		t.Errorf("status %+v", st)
	}
	do(t, b.set(t, bescheduler.Knob, loaded)) // the policy tries again
	if got := b.snapshot(t).Knobs.Now[bescheduler.Knob]; got != node.Value(loaded) {
		t.Errorf("after a retry %v", got)
	}
}

func TestOtherCPUsLoadItAnew(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded), b.order(t, "ls", "LSX"))
	first := b.ext.now
	first.events <- scx.Exited{Exit: scx.Exit{Kind: scx.ExitKernel, Code: 1 << 48, Reason: "cpu 3 going offline"}}
	waitUntil(t, "it is loaded anew", func() bool { return b.ext.loaded() == 2 })
	<-b.isolation.Events()
	if s := b.snapshot(t); len(s.Isolation.Failures) > 0 || s.Knobs.Now[bescheduler.Knob] != node.Value(loaded) {
		t.Errorf("falls %v, shown as %v", s.Isolation.Failures, s.Knobs.Now[bescheduler.Knob])
	}
	if g, is := b.entryOf(t, "ls"); b.ext.now == first || !is || g.Class != scx.LSX {
		t.Error("the new one does not have the orders of the last")
	}
}

func TestRefusedLoadIsAFall(t *testing.T) {
	tests := map[string]struct {
		refuses  error
		failures int
	}{
		"the kernel cannot":     {scx.ErrUnsupported, 1},
		"another is loaded":     {scx.ErrBusy, 1},
		"the kernel refuses it": {errBoom, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, true)
			b.snapshot(t)
			b.ext.refuses = tc.refuses
			if err := b.set(t, bescheduler.Knob, loaded); !errors.Is(err, bescheduler.ErrLoading) {
				t.Errorf("got %v", err)
			}
			s := b.snapshot(t)
			if len(s.Isolation.Failures) != tc.failures || !s.Isolation.Failures[0].Refused {
				t.Errorf("falls %v, want %d, refused", s.Isolation.Failures, tc.failures)
			}
			if _, shown := s.Knobs.Before[bescheduler.Knob]; !shown {
				t.Error("it does not show that it must be released")
			}
			if do(t, b.release(t, bescheduler.Knob)); !b.journaled(t).Empty() {
				t.Errorf("journaled: %v", b.journaled(t))
			}
		})
	}
}

func TestFrozenAndEndingWorkLeavesTheScheduler(t *testing.T) {
	b := newBench(t, true)
	a, other := b.thread(t, "be/a", task.Normal), b.thread(t, "be/b", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	run := node.Knob{Cgroup: "be/a", File: node.FileRun}
	do(t, b.set(t, run, node.Frozen))
	if b.ext.policy(a) != task.Normal || b.ext.policy(other) != task.Ext {
		t.Errorf("frozen: policies %v and %v, want only the first normal", b.ext.policy(a), b.ext.policy(other))
	}
	b.isolation.Expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
		t.Errorf("shown as %v: it would be converted while frozen", got)
	}
	do(t, b.release(t, run))
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsMixed {
		t.Errorf("after the thaw shown as %v, want mixed", got)
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE), b.set(t, run, node.AskedToEnd))
	if b.ext.policy(a) != task.Normal {
		t.Errorf("asked to end: policy %v", b.ext.policy(a))
	}
}

func TestKernelWithoutThePolicyIsAFall(t *testing.T) {
	b := newBench(t, true)
	b.thread(t, "be/a", task.Normal)
	b.ext.lacks = true
	b.snapshot(t)
	if err := b.set(t, policyOf("be"), node.ThreadsBE); !errors.Is(err, task.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if f := b.snapshot(t).Isolation.Failures; len(f) != 1 || f[0].Mechanism != node.MechanismSchedExt || !f[0].Refused {
		t.Errorf("falls %v", f)
	}
	if err := b.set(t, policyOf("gone"), node.ThreadsBE); !errors.Is(err, cgroup.ErrGone) || len(b.snapshot(t).Isolation.Failures) != 1 {
		t.Errorf("a group that is gone: %v, falls %v", err, b.snapshot(t).Isolation.Failures)
	}
}

func do(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
