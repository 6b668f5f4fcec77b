package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/scx"
)

// TestSchedulerIsNotLoadedAnewForNobody: the CPUs change, and while it is being
// loaded anew it is to go.
func TestSchedulerIsNotLoadedAnewForNobody(t *testing.T) {
	gone := scx.Exited{Exit: scx.Exit{Kind: scx.ExitKernel, Code: 1 << 48, Reason: "cpu 3 going offline"}}
	t.Run("while it is loaded", func(t *testing.T) {
		b := newBench(t, true)
		b.snapshot(t)
		do(t, b.set(t, schedulerKnob, loaded))
		b.ext.mu.Lock()
		b.ext.gate = make(chan struct{})
		b.ext.mu.Unlock()
		b.ext.now.events <- gone
		until(t, "a load has begun", func() bool { b.ext.mu.Lock(); defer b.ext.mu.Unlock(); return b.ext.waits == 2 })
		done := make(chan error, 1)
		go func() { done <- b.writeScheduler(node.Scheduler{}) }()
		time.Sleep(10 * time.Millisecond) // it finds none, and would be done
		close(b.ext.gate)
		do(t, <-done)
		until(t, "the load has ended", func() bool { return b.ext.loaded() == 2 })
		until(t, "and was noted", func() bool { return !b.loads() })
		if now, _ := b.readScheduler(); now != node.Value(node.Scheduler{}) || !b.ext.now.closed {
			t.Errorf("after the unload %v is loaded, that nobody owns", now)
		}
	})
	t.Run("before it is tried again", func(t *testing.T) {
		b := newBench(t, true)
		b.snapshot(t)
		do(t, b.set(t, schedulerKnob, loaded))
		b.isolation.left(b.ext.now)
		do(t, b.ext.now.Close(), b.writeScheduler(node.Scheduler{}), b.reload())
		if n := b.ext.loaded(); n != 1 {
			t.Errorf("it was loaded %d times", n)
		}
	})
}

func TestWhatTheSchedulerDoesNotTakeIsSaid(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded))
	b.snapshot(t)
	full := fmt.Errorf("the table is full: %w", errBoom)
	for name, set := range map[string]func(error){
		"groups": func(err error) { b.ext.now.full = err },
		"cap":    func(err error) { b.ext.now.uncaps = err },
	} {
		t.Run(name, func(t *testing.T) {
			set(full)
			b.isolation.mu.Lock()
			b.isolation.scheduler.told = told{}
			b.isolation.mu.Unlock()
			b.snapshot(t)
			b.snapshot(t)
			select {
			case e := <-b.RungEvents():
				if !strings.Contains(e.Text, full.Error()) {
					t.Errorf("event %q", e.Text)
				}
			default:
				t.Error("nobody was called")
			}
			select {
			case e := <-b.RungEvents():
				t.Errorf("said again: %q", e.Text)
			default:
			}
			if got := b.IsolationStatus().Untold; !strings.Contains(got, full.Error()) {
				t.Errorf("status %q", got)
			}
			set(nil)
			b.snapshot(t)
			if got := b.IsolationStatus().Untold; got != "" {
				t.Errorf("when it has taken all: %q", got)
			}
		})
	}
	if g := b.ext.now.groups; g[0].Class != scx.LSX || !slices.IsSortedFunc(g, func(a, b scx.Group) int { return int(b.Class) - int(a.Class) }) {
		t.Errorf("%v: a full table would lose those to be protected", g)
	}
}

// TestAWorkloadsOwnRankGoesBeforeItsClass: with LSR told to expel nobody.
func TestAWorkloadsOwnRankGoesBeforeItsClass(t *testing.T) {
	b := newBench(t, true)
	want := map[uint64]scx.Class{}
	for name, w := range map[string]struct {
		class node.Class
		rank  node.Maybe[node.Identity]
		want  scx.Class
	}{
		"nothing is asked":        {node.LS, node.Maybe[node.Identity]{}, scx.LSX},
		"it is nothing special":   {node.LS, node.Some(node.IdentityNone), scx.Normal},
		"it expels nobody":        {node.LS, node.Some(node.IdentityHigh), scx.LS},
		"of a class that expels":  {node.LS, node.Some(node.IdentityExpels), scx.LSX},
		"its class expels nobody": {node.LSR, node.Maybe[node.Identity]{}, scx.LS},
		"but it does":             {node.LSR, node.Some(node.IdentityExpels), scx.LSX},
	} {
		cgroup := node.CgroupPath("ls/" + strings.ReplaceAll(name, " ", "-"))
		b.group(t, string(cgroup))
		b.Manage(node.Workload{ID: node.WorkloadID(name), Class: w.class, Cgroup: cgroup, Meet: cgroup, Asks: node.Asks{Identity: w.rank}})
		inode, err := b.Inode(cgroup)
		do(t, err)
		want[inode] = w.want
	}
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded))
	b.snapshot(t)
	got := map[uint64]scx.Class{}
	for _, g := range b.ext.now.groups {
		if _, ours := want[g.Cgroup]; ours {
			got[g.Cgroup] = g.Class
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classes by inode (-want +got):\n%s", diff)
	}
}

func TestMoreWorkloadsThanSlotsIsSaid(t *testing.T) {
	b := newBench(t, true)
	for n := range scx.Slots {
		b.Manage(node.Workload{ID: node.WorkloadID(fmt.Sprintf("w%03d", n)), Class: node.BE, Cgroup: "be/a", Meet: "be"})
	}
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded))
	if got := b.IsolationStatus().Untold; !strings.HasPrefix(got, "3 workloads without a quota") {
		t.Errorf("status %q", got)
	}
}

func TestLimitThatCannotBeReadStays(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, node.Knob{Cgroup: "be", File: node.FileCPUMax}, node.CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}))
	b.snapshot(t)
	do(t, b.set(t, schedulerKnob, loaded))
	do(t, os.Remove(filepath.Join(b.root, "be/cpu.max")))
	b.Reread()
	b.snapshot(t)
	if got := b.ext.now.most; got != 500 {
		t.Errorf("cap %v without a reading, want the last, 500m", got)
	}
}

// TestOneMeetWithoutAQuotaLiftsNoOther: the cap is of all; what it cannot say the
// quotas of the pods do.
func TestOneMeetWithoutAQuotaLiftsNoOther(t *testing.T) {
	b := newBench(t, true)
	b.group(t, "free")
	b.Manage(node.Workload{ID: "c", Class: node.BE, Cgroup: "free", Meet: "free"})
	b.snapshot(t)
	do(t,
		b.set(t, node.Knob{Cgroup: "be", File: node.FileCPUMax}, node.CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}),
		b.set(t, node.Knob{Cgroup: "be/a", File: node.FileCPUMax}, node.CPUMax{Quota: 10 * time.Millisecond, Period: 100 * time.Millisecond}),
		b.set(t, schedulerKnob, loaded),
	)
	want := []scx.Pod{{Slot: 1, Weight: 100, Quota: 10 * time.Millisecond}, {Slot: 2, Weight: 100, Quota: 25 * time.Millisecond}, {Slot: 3, Weight: 100}}
	if s := b.ext.now; s.most != scx.NoCap || !slices.Equal(s.pods, want) {
		t.Errorf("cap %v, pods %v, want none and %v", s.most, s.pods, want)
	}
}

func TestNothingIsMirroredWithoutAScheduler(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	if v := b.isolation.scheduler.view; len(v.inodes)+len(v.limits)+len(v.workloads) > 0 {
		t.Errorf("made %v for nobody", v)
	}
}
