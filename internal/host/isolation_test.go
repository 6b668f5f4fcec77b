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

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/scx"
	"tenon.sh/tenon/internal/task"
	"tenon.sh/tenon/internal/unit"
)

var loaded = node.Scheduler{Loaded: true, Siblings: true, Hold: 200 * time.Microsecond, Headroom: node.SchedulerHeadroom, Gentle: "LSR"}

func TestThreadsOfAGroupAreConvertedAndRestored(t *testing.T) {
	b := newBench(t, true)
	meet, a, late := b.thread(t, "be", task.Normal), b.thread(t, "be/a", task.Batch), 0
	realtime, web := b.thread(t, "be/b", task.FIFO), b.thread(t, "ls", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if got := []task.Policy{b.ext.policy(meet), b.ext.policy(a), b.ext.policy(realtime), b.ext.policy(web)}; !slices.Equal(got, []task.Policy{task.Ext, task.Ext, task.FIFO, task.Normal}) {
		t.Errorf("policies %v, want those of BE converted, and nobody else's", got)
	}
	s := b.snapshot(t)
	if got := s.Knobs.Now[policyOf("be")]; got != node.ThreadsBE || s.Knobs.Before[policyOf("be")] != node.ThreadsNormal {
		t.Errorf("shown as %v, before %v", got, s.Knobs.Before[policyOf("be")])
	}
	if n := b.IsolationStatus().Realtime; n != 1 {
		t.Errorf("%d real-time threads are told, want 1", n)
	}

	late = b.thread(t, "be/b", task.Normal)
	b.isolation.expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsMixed {
		t.Errorf("with a stray it shows %v, want mixed", got)
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if b.ext.policy(late) != task.Ext {
		t.Error("a stray was not converted")
	}
	if st := b.IsolationStatus(); st.Strays != 1 || st.Converted != 1 {
		t.Errorf("%d strays and %d converted are told, want 1 and 1", st.Strays, st.Converted)
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
		t.Error("a knob that nobody has turned is read")
	}
}

// TestRestoreAfterADeadAgent is what another process finds: threads with the
// policy, and the journal.
func TestRestoreAfterADeadAgent(t *testing.T) {
	b := newBench(t, true)
	a, inherited := b.thread(t, "be/a", task.Normal), 0
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded), b.set(t, policyOf("be"), node.ThreadsBE))
	inherited = b.thread(t, "be/b", task.Ext)

	b.open(t, false, strings.TrimSuffix(b.root, "/v2"))
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
	b.Manage(node.Workload{ID: "inner", Class: node.LS, Cgroup: "be/b", Meet: "be/b"})
	b.Forget("b")
	web, inner, a := b.thread(t, "ls", task.Normal), b.thread(t, "be/b", task.Normal), b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	if err := b.set(t, policyOf("ls"), node.ThreadsBE); !errors.Is(err, errNotBE) {
		t.Errorf("latency-sensitive work: %v, want a refusal", err)
	}
	if err := b.set(t, policyOf(""), node.ThreadsBE); !errors.Is(err, ErrOwn) {
		t.Errorf("the whole machine: %v, want a refusal", err)
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if b.ext.policy(web) != task.Normal || b.ext.policy(inner) != task.Normal || b.ext.policy(a) != task.Ext {
		t.Errorf("policies %v %v %v, want the last converted only", b.ext.policy(web), b.ext.policy(inner), b.ext.policy(a))
	}
	if len(b.snapshot(t).Isolation.Falls) > 0 {
		t.Error("a refusal of ours counts as a fall")
	}
}

// TestWorkOfAnotherClassLosesThePolicy: it would not run in time, below all others.
func TestWorkOfAnotherClassLosesThePolicy(t *testing.T) {
	b := newBench(t, true)
	promoted, stays := b.thread(t, "be/b", task.Normal), b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	child := b.thread(t, "ls", task.Ext) // a best-effort thread has started it
	b.Manage(node.Workload{ID: "b", Class: node.LS, Cgroup: "be/b", Meet: "be/b"})
	s := b.snapshot(t)
	if b.ext.policy(promoted) != task.Normal || b.ext.policy(child) != task.Normal || b.ext.policy(stays) != task.Ext {
		t.Errorf("policies %v %v %v, want only the last kept", b.ext.policy(promoted), b.ext.policy(child), b.ext.policy(stays))
	}
	if got := s.Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
		t.Errorf("shown as %v", got)
	}
	late := b.thread(t, "ls", task.Ext)
	s.At = s.At.Add(glanceWithin)
	b.guardOthers(&s)
	if p := b.ext.policy(late); p != task.Normal {
		t.Errorf("one that came later is %v after its turn", p)
	}
}

// TestOthersKeepWhatNobodyGaveThem: with long slices alone in use, a policy of
// work of other classes is somebody else's.
func TestOthersKeepWhatNobodyGaveThem(t *testing.T) {
	b := newBench(t, true)
	slice := node.Knob{Cgroup: "be", File: node.FileSlice}
	theirs := b.thread(t, "ls", task.Ext)
	s := b.snapshot(t)
	b.isolation.given[slice] = true
	b.guardOthers(&s)
	if p := b.ext.policy(theirs); p != task.Ext {
		t.Errorf("a thread of a scheduler that is not ours is %v", p)
	}
	b.isolation.given[policyOf("be")] = true
	s.At = s.At.Add(glanceWithin)
	b.guardOthers(&s)
	if p := b.ext.policy(theirs); p != task.Normal {
		t.Errorf("with the policy in use it is %v", p)
	}
}

// TestWorkIsLookedAfterForAWhileAfterTheRung: a thread that was being made during
// the release has a copy of what its parent had.
func TestWorkIsLookedAfterForAWhileAfterTheRung(t *testing.T) {
	b := newBench(t, true)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	b.snapshot(t)
	do(t, b.release(t, policyOf("be")))
	be, ls := b.thread(t, "be/a", task.Ext), b.thread(t, "ls", task.Ext)
	s := b.snapshot(t)
	s.At = s.At.Add(glanceWithin)
	b.guardOthers(&s)
	if b.ext.policy(be) != task.Normal || b.ext.policy(ls) != task.Normal {
		t.Errorf("policies %v and %v after the rung was given up", b.ext.policy(be), b.ext.policy(ls))
	}
	b.isolation.foreign.name = "theirs"
	b.ext.set(ls, task.Ext)
	s.At = s.At.Add(glanceWithin)
	b.guardOthers(&s)
	if b.ext.policy(ls) != task.Ext {
		t.Error("a thread of somebody else's scheduler lost its policy")
	}
}

// TestOnlyWhoseThreadsHaveThePolicyIsBestEffortToTheScheduler: of any other work
// each switch would be reported as a stray.
func TestOnlyWhoseThreadsHaveThePolicyIsBestEffortToTheScheduler(t *testing.T) {
	b := newBench(t, true)
	b.group(t, "lone")
	b.Manage(node.Workload{ID: "lone", Class: node.BE, Cgroup: "lone"}) // nobody knows where it meets others
	b.snapshot(t)
	inode, err := b.Inode("lone")
	do(t, err)
	class := func(want uint64) (scx.Class, bool) {
		for _, g := range b.ext.now.groups {
			if g.Cgroup == want {
				return g.Class, true
			}
		}
		return 0, false
	}
	a, err := b.Inode("be/a")
	do(t, err, b.set(t, schedulerKnob, loaded))
	if c, _ := class(a); c != scx.Normal {
		t.Errorf("before its threads have the policy: %v", c)
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	if c, _ := class(a); c != scx.BE {
		t.Errorf("at once after they got it: %v", c)
	}
	b.snapshot(t)
	if c, _ := class(inode); c != scx.Normal {
		t.Errorf("work without a place is %v", c)
	}
	do(t, b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.Frozen))
	b.snapshot(t)
	if c, _ := class(a); c != scx.Normal {
		t.Errorf("frozen: %v", c)
	}
	do(t, b.release(t, policyOf("be")))
	if be, err := b.Inode("be"); err != nil {
		t.Fatal(err)
	} else if c, _ := class(be); c != scx.Normal {
		t.Errorf("after the release: %v", c)
	}
}

// TestNewWorkInPlaceOfWhatEndedIsNotSpared: a unit that is started again has the
// same cgroup by name.
func TestNewWorkInPlaceOfWhatEndedIsNotSpared(t *testing.T) {
	b := newBench(t, true)
	b.thread(t, "be/a", task.Normal)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	do(t, b.set(t, node.Knob{Cgroup: "be/a", File: node.FileRun}, node.AskedToEnd))
	next := b.thread(t, "be/a", task.Normal)
	b.isolation.expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got != node.ThreadsBE {
		t.Fatalf("shown as %v while it ends", got)
	}
	b.put(t, filepath.Join(b.root, "be/a/cgroup.events"), "populated 0\nfrozen 0\n")
	b.snapshot(t)
	b.put(t, filepath.Join(b.root, "be/a/cgroup.events"), "populated 1\nfrozen 0\n")
	b.isolation.expire()
	if got := b.snapshot(t).Knobs.Now[policyOf("be")]; got == node.ThreadsBE {
		t.Errorf("thread %d is not looked at", next)
	}
}

func TestSchedulerIsToldOfWorkloadsAndLimits(t *testing.T) {
	b := newBench(t, true)
	b.Manage(node.Workload{ID: "calm", Class: node.LSR, Cgroup: "ls/calm", Meet: "ls/calm"})
	b.group(t, "ls/calm")
	b.snapshot(t)
	do(t,
		b.set(t, node.Knob{Cgroup: "be", File: node.FileCPUMax}, node.CPUMax{Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond}),
		b.set(t, node.Knob{Cgroup: "be/a", File: node.FileCPUMax}, node.CPUMax{Quota: 5 * time.Millisecond, Period: 20 * time.Millisecond}),
		b.set(t, node.Knob{Cgroup: "be/b", File: node.FileCPUWeight}, node.CPUWeight{Weight: unit.WeightOf(300)}),
		b.set(t, node.Knob{Cgroup: "be/a", File: node.FileCPUWeight}, node.CPUWeight{Idle: true}),
	)
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded), b.set(t, policyOf("be"), node.ThreadsBE))
	if got := b.snapshot(t).Knobs.Now[schedulerKnob]; got != node.Value(loaded) {
		t.Errorf("shown as %v, want %v", got, loaded)
	}
	id := func(p node.CgroupPath) uint64 {
		inode, err := b.Inode(p)
		do(t, err)
		return inode
	}
	s := b.ext.now
	want := []scx.Group{
		{Cgroup: id("be"), Class: scx.BE}, {Cgroup: id("be/a"), Class: scx.BE, Pod: 1}, {Cgroup: id("be/b"), Class: scx.BE, Pod: 2},
		{Cgroup: id("ls"), Class: scx.LSX}, {Cgroup: id("ls/calm"), Class: scx.LS},
	}
	if diff := cmp.Diff(want, s.groups, cmpopts.SortSlices(func(a, b scx.Group) bool { return a.Cgroup < b.Cgroup })); diff != "" {
		t.Errorf("groups: %s", diff)
	}
	if diff := cmp.Diff([]scx.Pod{{Slot: 1, Weight: 100, Quota: 25 * time.Millisecond}, {Slot: 2, Weight: 300}}, s.pods); diff != "" {
		t.Errorf("pods: %s", diff)
	}
	if s.most != 1500 {
		t.Errorf("cap %v, want 1500m", s.most)
	}
	if p := s.params; !p.SMTRule || p.Hold != 200*time.Microsecond || p.Headroom != scx.DefaultHeadroom || len(b.ext.loads[0].Topology) == 0 || b.ext.loads[0].CgroupVersion != 2 {
		t.Errorf("loaded with %+v", b.ext.loads[0])
	}
	if s.beats == 0 {
		t.Error("no heartbeat")
	}

	// Between two snapshots.
	do(t, b.set(t, node.Knob{Cgroup: "be", File: node.FileCPUMax}, node.CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}))
	if s.most != 500 {
		t.Errorf("cap %v after a quota was written, want 500m", s.most)
	}
	do(t, b.release(t, node.Knob{Cgroup: "be", File: node.FileCPUMax}))
	if s.most != scx.NoCap {
		t.Errorf("cap %v after the quota was released, want none", s.most)
	}
	strict := loaded
	strict.Gentle, strict.Hold = "", 0
	do(t, b.set(t, schedulerKnob, strict))
	if s.params.Hold >= 0 || !slices.Contains(s.groups, scx.Group{Cgroup: id("ls/calm"), Class: scx.LSX}) {
		t.Errorf("after a change: %+v, %v", s.params, s.groups)
	}
	if n := b.ext.loaded(); n != 1 {
		t.Errorf("a change of parameters loaded it %d times", n)
	}
	if st := b.IsolationStatus(); st.Loads != 1 || st.Scheduler == nil || st.Scheduler.Expels != 7 || !st.Scheduler.Running {
		t.Errorf("status %+v", st)
	}
	do(t, b.release(t, schedulerKnob))
	if st := b.IsolationStatus(); !s.closed || st.Exits[node.ExitUnload] != 1 || st.Scheduler.Running || len(b.snapshot(t).Isolation.Falls) > 0 {
		t.Errorf("closed %t, status %+v, falls %v", s.closed, st, b.snapshot(t).Isolation.Falls)
	}
}

func TestEndOfTheSchedulerIsAFall(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded))
	b.ext.now.events <- scx.Exited{Exit: scx.Exit{Kind: scx.ExitErrorStall, Reason: "runnable task stall", Message: "sh[12] failed to run for 30.1s"}}
	select {
	case e := <-b.RungEvents():
		if !strings.Contains(e.Text, "sched_ext fell") {
			t.Errorf("event %q", e.Text)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("nobody was called")
	}
	s := b.snapshot(t)
	want := []node.Fall{{Rung: node.RungSchedExt, Why: "the kernel ended the scheduler: runnable task stall: sh[12] failed to run for 30.1s"}}
	if diff := cmp.Diff(want, s.Isolation.Falls, cmpopts.IgnoreFields(node.Fall{}, "At")); diff != "" {
		t.Error(diff)
	}
	if age := s.At.Sub(s.Isolation.Falls[0].At); age < 0 || age > time.Minute {
		t.Errorf("it fell %v ago by the clock of the snapshot", age)
	}
	if got := s.Knobs.Now[schedulerKnob]; got != node.Value(node.Scheduler{}) {
		t.Errorf("shown as %v, want none", got)
	}
	if st := b.IsolationStatus(); st.Exits[node.ExitStall] != 1 || st.LastExit.Kind != node.ExitStall || st.Scheduler == nil || st.Scheduler.Running {
		t.Errorf("status %+v", st)
	}
	do(t, b.set(t, schedulerKnob, loaded)) // the policy tries again
	if got := b.snapshot(t).Knobs.Now[schedulerKnob]; got != node.Value(loaded) {
		t.Errorf("after a retry %v", got)
	}
}

func TestOtherCPUsLoadItAnew(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded))
	first := b.ext.now
	first.events <- scx.Exited{Exit: scx.Exit{Kind: scx.ExitKernel, Code: 1 << 48, Reason: "cpu 3 going offline"}}
	until(t, "it is loaded anew", func() bool { return b.ext.loaded() == 2 })
	<-b.RungEvents()
	if s := b.snapshot(t); len(s.Isolation.Falls) > 0 || s.Knobs.Now[schedulerKnob] != node.Value(loaded) {
		t.Errorf("falls %v, shown as %v", s.Isolation.Falls, s.Knobs.Now[schedulerKnob])
	}
	if b.ext.now == first || len(b.ext.now.groups) == 0 {
		t.Error("the new one was not told of the workloads")
	}
}

func TestRefusedLoadIsAFall(t *testing.T) {
	tests := map[string]struct {
		refuses error
		falls   int
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
			if err := b.set(t, schedulerKnob, loaded); !errors.Is(err, ErrLoading) {
				t.Errorf("got %v", err)
			}
			s := b.snapshot(t)
			if len(s.Isolation.Falls) != tc.falls || !s.Isolation.Falls[0].Refused {
				t.Errorf("falls %v, want %d, refused", s.Isolation.Falls, tc.falls)
			}
			if _, shown := s.Knobs.Before[schedulerKnob]; !shown {
				t.Error("nobody sees that it is to be given up")
			}
			if do(t, b.release(t, schedulerKnob)); !b.journaled(t).Empty() {
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
	b.isolation.expire()
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
	if f := b.snapshot(t).Isolation.Falls; len(f) != 1 || f[0].Rung != node.RungSchedExt || !f[0].Refused {
		t.Errorf("falls %v", f)
	}
	if err := b.set(t, policyOf("gone"), node.ThreadsBE); !errors.Is(err, cgroup.ErrGone) || len(b.snapshot(t).Isolation.Falls) != 1 {
		t.Errorf("a group that is gone: %v, falls %v", err, b.snapshot(t).Isolation.Falls)
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
