package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// TestASchedulerThatIsUnwantedAfterItsLoadIsUnloaded changes the CPUs, so that
// the scheduler is loaded again. During this load the scheduler becomes
// unwanted. After the load it must be unloaded.
func TestASchedulerThatIsUnwantedAfterItsLoadIsUnloaded(t *testing.T) {
	gone := scx.Exited{Exit: scx.Exit{Kind: scx.ExitKernel, Code: 1 << 48, Reason: "cpu 3 going offline"}}
	t.Run("while it is loaded", func(t *testing.T) {
		b := newBench(t, true)
		b.snapshot(t)
		do(t, b.set(t, bescheduler.Knob, loaded))
		b.ext.mu.Lock()
		b.ext.gate = make(chan struct{})
		b.ext.mu.Unlock()
		b.ext.now.events <- gone
		waitUntil(t, "a load has begun", func() bool { b.ext.mu.Lock(); defer b.ext.mu.Unlock(); return b.ext.waits == 2 })
		done := make(chan error, 1)
		go func() { done <- b.isolation.Scheduler().Write(node.Scheduler{}) }()
		time.Sleep(10 * time.Millisecond) // the call finds no thread
		close(b.ext.gate)
		do(t, <-done)
		waitUntil(t, "the load has ended", func() bool { return b.ext.loaded() == 2 })
		waitUntil(t, "and was noted", func() bool { return !b.isolation.Scheduler().Loading() })
		if now, _ := b.isolation.Scheduler().Read(); now != node.Value(node.Scheduler{}) || !b.ext.now.closed {
			t.Errorf("after the unload %v is loaded without an owner", now)
		}
	})
}

// listOrders returns the orders that a snapshot shows.
func listOrders(s node.Snapshot) map[string]string {
	all := map[string]string{}
	for k, v := range s.Knobs.Now {
		if k.File.OrdersScheduler() {
			all[k.Object()] = v.String()
		}
	}
	return all
}

// TestOrdersReachTheSchedulerAndReadBack checks that the snapshot shows exactly
// what the scheduler's maps contain.
func TestOrdersReachTheSchedulerAndReadBack(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded),
		b.order(t, "ls", "LSX"), b.order(t, "be", "BE"), b.order(t, "be/a", "BE slot 3 weight 300 quota 1500m"),
		b.set(t, node.Knob{File: node.FileSchedulerCap}, node.SchedulerCap{Most: 2500}),
	)
	s := b.ext.now
	for p, want := range map[node.CgroupPath]scx.Group{"ls": {Class: scx.LSX}, "be": {Class: scx.BE}, "be/a": {Class: scx.BE, Pod: 3}} {
		if g, is := b.entryOf(t, p); !is || g != want {
			t.Errorf("the maps have of %s %v, %t, want %v", p, g, is, want)
		}
	}
	if want := (scx.Pod{Slot: 3, Weight: 300, Quota: 150 * time.Millisecond}); s.pods[3] != want || s.most != 2500 {
		t.Errorf("slot 3 has %v and the cap is %v, want %v and 2500m", s.pods[3], s.most, want)
	}
	want := map[string]string{"ls": "LSX", "be": "BE", "be/a": "BE slot 3 weight 300 quota 1500m", "/": "2500m"}
	if diff := cmp.Diff(want, listOrders(b.snapshot(t))); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
	if st := b.journaled(t); len(st.Touches) != 1 {
		t.Errorf("journaled: %v, want the scheduler alone: orders end with it", st.Touches)
	}

	// Change the maps directly, as another process with access to them could
	// do.
	inode, err := b.Inode("be/a")
	do(t, err, s.DropGroup(inode), s.SetPod(scx.Pod{Slot: 3}))
	late := node.Snapshot{}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		late.Knobs.Now = map[node.Knob]node.Value{}
		late.At = late.At.Add(reread.Changed / 2)
		b.isolation.Scheduler().FillOrders(late.At, late.Knobs.Now)
		if _, shown := late.Knobs.Now[orderOf("be/a")]; !shown {
			break
		}
	}
	if got := listOrders(late); got["be/a"] != "" || got["ls"] != "LSX" {
		t.Errorf("shown after the maps have changed: %v", got)
	}

	// The policy cancels an order, and with it the weight of the order's slot.
	do(t, b.order(t, "be/b", "BE slot 4 weight 50"), b.order(t, "be/b", "NORMAL"), b.order(t, "ls", "none"))
	if g, _ := b.entryOf(t, "be/b"); g.Class != scx.Normal || s.pods[4] != (scx.Pod{Slot: 4}) {
		t.Errorf("be/b is %v, slot 4 has %v", g, s.pods[4])
	}
	if _, is := b.entryOf(t, "ls"); is {
		t.Error("ls is in the maps after its order was taken back")
	}
	do(t, b.release(t, bescheduler.Knob))
	if got := listOrders(b.snapshot(t)); len(got) != 1 || got["/"] != "max" {
		t.Errorf("after the scheduler is gone: %v", got)
	}
}

// TestOrdersWaitForTheScheduler gives orders while the kernel verifies the
// scheduler, which takes a second or more. When the scheduler is loaded, the
// limits of best-effort work must hold from the first moment on.
func TestOrdersWaitForTheScheduler(t *testing.T) {
	b := newBench(t, true)
	gate := b.loadSlowly(t)
	do(t, b.order(t, "ls", "LSX"), b.order(t, "be/a", "BE slot 1 weight 100 quota 500m"), b.set(t, node.Knob{File: node.FileSchedulerCap}, node.SchedulerCap{Most: 500}))
	if got := listOrders(b.snapshot(t)); got["ls"] != "LSX" || got["/"] != "500m" {
		t.Errorf("while it is loaded: %v", got)
	}
	close(gate)
	waitUntil(t, "the loop is called", func() bool { return len(b.isolation.Events()) > 0 })
	<-b.isolation.Events()
	if g, is := b.entryOf(t, "ls"); !is || g.Class != scx.LSX || b.ext.now.most != 500 || b.ext.now.pods[1].Quota != 50*time.Millisecond {
		t.Errorf("loaded with %v, cap %v, pods %v", b.ext.now.groups, b.ext.now.most, b.ext.now.pods)
	}
}

func TestWhatTheSchedulerDoesNotTakeIsSaid(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded))
	full := fmt.Errorf("the table is full: %w", errBoom)
	for name, set := range map[string]func(error){
		"groups": func(err error) { b.ext.now.full = err },
		"cap":    func(err error) { b.ext.now.uncaps = err },
	} {
		t.Run(name, func(t *testing.T) {
			give := func() error {
				if name == "cap" {
					return b.set(t, node.Knob{File: node.FileSchedulerCap}, node.SchedulerCap{Most: 700})
				}
				return b.order(t, "ls", "LSX")
			}
			set(full)
			if err := give(); err == nil || !strings.Contains(err.Error(), full.Error()) {
				t.Errorf("the step says %v", err)
			}
			if got := b.isolation.Status().Refused; !strings.Contains(got, full.Error()) {
				t.Errorf("status %q", got)
			}
			if got := listOrders(b.snapshot(t)); got["ls"] == "LSX" || got["/"] == "700m" {
				t.Errorf("shown as if it had been taken: %v", got)
			}
			set(nil)
			do(t, give())
			if got := b.isolation.Status().Refused; got != "" {
				t.Errorf("when it has taken all: %q", got)
			}
			do(t, b.order(t, "ls", "none"), b.set(t, node.Knob{File: node.FileSchedulerCap}, node.SchedulerCap{}))
		})
	}
}

func TestOrdersThatMakeNoSenseAreRefused(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded))
	if err := b.order(t, "gone", "LSX"); err == nil {
		t.Error("a cgroup that is not there has an order")
	}
	if err := b.set(t, orderOf("ls"), node.SchedulerGroup{Class: node.SchedulerBE, Slot: node.SchedulerSlots, Weight: 100}); err == nil {
		t.Error("a slot that is not there is taken")
	}
	if err := b.set(t, orderOf("ls"), node.Maximum{}); err == nil {
		t.Error("a number of processes is an order")
	}
	if node.SchedulerSlots != scx.Slots {
		t.Errorf("node knows %d slots, the scheduler has %d", node.SchedulerSlots, scx.Slots)
	}
}

// TestOrderOfACgroupThatIsMadeAnewIsGone removes a cgroup and makes it again.
// The new cgroup has another inode, and must not have the order of the old one.
func TestOrderOfACgroupThatIsMadeAnewIsGone(t *testing.T) {
	b := newBench(t, true)
	b.snapshot(t)
	do(t, b.set(t, bescheduler.Knob, loaded), b.order(t, "ls", "LSX"))
	before, err := b.Inode("ls")
	do(t, err, os.Rename(filepath.Join(b.root, "ls"), filepath.Join(t.TempDir(), "ls")))
	b.group(t, "ls")
	b.cache.expire()
	if got := listOrders(b.snapshot(t)); got["ls"] != "" {
		t.Errorf("shown: %v", got)
	}
	_, err = b.Sweep(nil)
	do(t, err)
	if _, is := b.ext.now.groups[before]; is {
		t.Error("the maps still have the cgroup that is gone")
	}
}

// TestSnapshotWritesNothing checks that a snapshot writes neither to the
// scheduler nor to threads, even if a thread or an order is wrong.
func TestSnapshotWritesNothing(t *testing.T) {
	b := newBench(t, true)
	b.thread(t, "be/a", 0)
	b.snapshot(t)
	do(t, b.set(t, policyOf("be"), node.ThreadsBE), b.set(t, bescheduler.Knob, loaded), b.order(t, "ls", "LSX"))
	astray := b.thread(t, "ls", 7) // SCHED_EXT, in work of another class
	b.Manage(node.Workload{ID: "new", Class: node.LS, Cgroup: "be/b", ContentionRoot: "be/b"})
	before, written := b.ext.now.beats, b.ext.now.writes
	calls := b.ext.changes
	at := treeOf(t, b.root)
	for range 3 {
		b.isolation.Expire()
		b.Reread()
		if _, err := b.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b.ext.now.beats != before || b.ext.now.writes != written || b.ext.changes != calls {
		t.Errorf("%d heartbeats, %d orders, %d changes of threads", b.ext.now.beats-before, b.ext.now.writes-written, b.ext.changes-calls)
	}
	if diff := cmp.Diff(at, treeOf(t, b.root)); diff != "" {
		t.Errorf("files of cgroups have changed:\n%s", diff)
	}
	if p := b.ext.policy(astray); p != 7 {
		t.Errorf("the policy of thread %d is %v", astray, p)
	}
	do(t, b.Guard())
	if p := b.ext.policy(astray); p == 7 || b.ext.now.beats == before {
		t.Errorf("after Guard it is %v; %d heartbeats", p, b.ext.now.beats-before)
	}
}

// TestAWorkloadThatEndsIsShownAsSuch checks that a snapshot shows a workload as
// ending, and no longer does so when the eviction counts as cancelled.
func TestAWorkloadThatEndsIsShownAsSuch(t *testing.T) {
	b := newBench(t, true)
	run := node.Knob{Cgroup: "be/a", File: node.FileRun}
	ending := func(s node.Snapshot) node.Run {
		for _, w := range s.Workloads {
			if w.ID == "a" {
				return w.Ending
			}
		}
		t.Fatal("there is no workload a")
		return ""
	}
	if got := ending(b.snapshot(t)); got != "" {
		t.Errorf("at first: %q", got)
	}
	do(t, b.set(t, run, node.Frozen))
	if got := ending(b.snapshot(t)); got != "" {
		t.Errorf("frozen: %q", got)
	}
	do(t, b.set(t, run, node.AskedToEnd))
	if got := ending(b.snapshot(t)); got != node.AskedToEnd {
		t.Errorf("asked to end: %q", got)
	}
	do(t, b.set(t, run, node.Ended))
	if got := ending(b.snapshot(t)); got != node.Ended {
		t.Errorf("killed: %q", got)
	}
	if got := ending(b.snapshotAfter(t, isolation.MaxExempt)); got != "" {
		t.Errorf("when it has not ended for long: %q", got)
	}
}
