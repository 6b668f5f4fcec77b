package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// startOften calls start for the time long, at the same intervals as the method
// keep. It returns the log.
func startOften(t *testing.T, long time.Duration, watchdog string) string {
	t.Helper()
	var said bytes.Buffer
	g := &guard{dir: t.TempDir(), log: slog.New(slog.NewTextHandler(&said, nil))}
	for range long / lease.Renewal {
		g.start([]string{watchdog})
		time.Sleep(lease.Renewal)
	}
	return said.String()
}

func TestAWatchdogThatDiesAtOnceIsStartedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The watchdog is started after 0, 1, 3, 7, 15, 31, 63 and 123 s.
		if said := startOften(t, 150*time.Second, "true"); strings.Count(said, "watchdog started") != 8 {
			t.Errorf("the log is\n%s", said)
		}
	})
}

func TestThatThereIsNoWatchdogIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said := startOften(t, 30*time.Second, "/no/such/program"); strings.Count(said, "no watchdog") != 1 {
			t.Errorf("the log is\n%s", said)
		}
	})
}

func TestStepsThatTakeLongAreNoHang(t *testing.T) {
	loaded, other := node.Scheduler{Loaded: true}, node.Scheduler{Loaded: true, Siblings: true}
	high := func(b unit.Bytes) node.Memory { return node.Memory{High: b, Max: 1 << 30} }
	for name, c := range map[string]struct {
		step plan.Step
		want time.Duration
	}{
		"load":               {plan.Step{From: node.Scheduler{}, To: loaded}, hungAfter}, // loads in the background
		"unknown now":        {plan.Step{To: loaded}, hungAfter},
		"change":             {plan.Step{From: loaded, To: other}, hungAfter},
		"unload":             {plan.Step{From: loaded, To: node.Scheduler{}}, stepTime},
		"convert":            {plan.Step{From: node.ThreadsNormal, To: node.ThreadsBE}, stepTime},
		"give back":          {plan.Step{From: node.ThreadsBE, To: node.ThreadsNormal, Release: true}, stepTime},
		"a quota":            {plan.Step{From: node.Limit(1), To: node.Limit(2)}, hungAfter},
		"reclaim":            {plan.Step{From: high(2 << 20), To: high(1 << 20)}, stepTime},
		"a new limit":        {plan.Step{From: node.NoMemoryLimit, To: high(unit.MaxBytes)}, stepTime},
		"a limit back":       {plan.Step{From: node.NoMemoryLimit, To: high(1 << 20), Release: true}, stepTime},
		"memory now unknown": {plan.Step{To: high(1 << 20)}, stepTime},
		"more memory":        {plan.Step{From: high(1 << 20), To: high(2 << 20)}, hungAfter},
		"protection":         {plan.Step{From: node.NoMemoryLimit, To: node.Memory{Min: 1 << 20, Low: 1 << 20, High: unit.MaxBytes, Max: unit.MaxBytes}}, hungAfter},
	} {
		if got := host.MayTakeLong(c.step); got != (c.want == stepTime) {
			t.Errorf("%s: it takes long: %v, want at most %v", name, got, c.want)
		}
	}
}

// narrowMemory is a step for which the kernel may reclaim memory.
var narrowMemory = plan.Step{Knob: node.Knob{Cgroup: "be", File: node.FileMemory}, From: node.NoMemoryLimit, To: node.Memory{High: 1 << 20, Max: unit.MaxBytes}}

// TestTheLeaseLastsWhileTheKernelReclaimsMemory narrows a memory limit, for which
// the kernel reclaims memory for longer than the lease lasts. The loop works, so
// the lease must not expire.
func TestTheLeaseLastsWhileTheKernelReclaimsMemory(t *testing.T) {
	g := openTestGuard(t)
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- g.keep(ctx, nil) }()
	g.begin()
	if err := g.during(narrowMemory, func() error { time.Sleep(lease.TTL + lease.Renewal); return nil }); err != nil {
		t.Error(err)
	}
	if g.lease.HasExpired() {
		t.Error("the lease has expired")
	}
	stop()
	if err := <-kept; !errors.Is(err, context.Canceled) {
		t.Errorf("keep: %v", err)
	}
}

// TestATickDoesNotReclaimForLong checks that a tick leaves memory limits for the
// next tick if the kernel has already reclaimed memory for too long, and performs
// its other steps.
func TestATickDoesNotReclaimForLong(t *testing.T) {
	widen := plan.Step{Knob: narrowMemory.Knob, From: narrowMemory.To, To: narrowMemory.From}
	quota := plan.Step{Knob: node.Knob{Cgroup: "be", File: node.FileCPUMax}, From: node.Limit(2), To: node.Limit(1)}
	g := openTestGuard(t)
	synctest.Test(t, func(t *testing.T) {
		perform := func(s plan.Step, takes time.Duration) error {
			return g.during(s, func() error { time.Sleep(takes); return nil })
		}
		for i := range 3 { // ticks
			g.begin()
			for _, takes := range []time.Duration{reclaimTime / 2, 2 * reclaimTime} {
				if err := perform(narrowMemory, takes); err != nil {
					t.Errorf("tick %d: %v", i, err)
				}
			}
			if err := perform(narrowMemory, 0); !errors.Is(err, errReclaimed) {
				t.Errorf("tick %d: narrowed after a long reclaim: %v", i, err)
			}
			if err := errors.Join(perform(widen, 0), perform(quota, 0)); err != nil {
				t.Errorf("tick %d: %v", i, err)
			}
		}
	})
}

// TestStepsThatReclaimComeLast plans a memory limit of a container, deep in the
// tree, and a quota of all best-effort work. Services wait for the quota, so it
// must not wait until the kernel has reclaimed memory.
func TestStepsThatReclaimComeLast(t *testing.T) {
	quota, box := node.Knob{Cgroup: "kubepods/be", File: node.FileCPUMax}, node.Knob{Cgroup: "kubepods/be/pod/box", File: node.FileMemory}
	steps := plan.Diff(node.Knobs{
		Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096},
		Now:    map[node.Knob]node.Value{quota: node.Limit(4000), box: node.NoMemoryLimit},
	}, []plan.Want{
		{Intent: plan.Set, Knob: box, Value: node.Memory{High: 1 << 20, Max: unit.MaxBytes}, BE: true},
		{Intent: plan.Set, Knob: quota, Value: node.Limit(1000), BE: true},
	})
	if len(steps) != 2 || steps[0].Knob != box {
		t.Fatalf("the plan is %v", steps)
	}
	if order := new(guard).order(steps); !slices.Equal(order, []int{1, 0}) {
		t.Errorf("the order is %v, want the quota first", order)
	}
}

// TestALimitThatTheKernelRefusesLetsOthersGoFirst has limits that the kernel
// refuses after it has tried to reclaim memory for the whole time of a tick. Each
// other limit must be narrowed within as many ticks as there are such limits, and
// one more.
func TestALimitThatTheKernelRefusesLetsOthersGoFirst(t *testing.T) {
	step := func(p node.CgroupPath) plan.Step {
		s := narrowMemory
		s.Knob.Cgroup = p
		return s
	}
	for name, refused := range map[string][]node.CgroupPath{"one": {"be/a"}, "two": {"be/a", "be/b"}} {
		t.Run(name, func(t *testing.T) {
			g, narrowed := openTestGuard(t), false
			synctest.Test(t, func(t *testing.T) {
				for range len(refused) + 1 { // ticks
					var steps []plan.Step
					for _, p := range append(slices.Clone(refused), "be/z") {
						steps = append(steps, step(p))
					}
					g.begin()
					for _, i := range g.order(steps) {
						_ = g.during(steps[i], func() error {
							if steps[i].Knob.Cgroup == "be/z" {
								narrowed = true
								return nil
							}
							time.Sleep(reclaimTime + reclaimTime/10)
							return syscall.EBUSY
						})
					}
				}
			})
			if !narrowed {
				t.Error("the other limit was never narrowed")
			}
			if g.order(nil); len(g.refused) != 0 {
				t.Errorf("without steps, the guard remembers %v", g.refused)
			}
		})
	}
}

// TestBoundsThatCannotBeWrittenAreNoDamage makes new bounds impossible to write, as
// a full file system does. The lease holds, so the liveness probe, which fails
// while the state is damaged, must not restart the daemon.
func TestBoundsThatCannotBeWrittenAreNoDamage(t *testing.T) {
	g := openTestGuard(t)
	next := filepath.Join(g.dir, "lease.next")
	if err := os.MkdirAll(filepath.Join(next, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	g.bounds = []lease.Bound{{Knob: node.Knob{Cgroup: "be", File: node.FileCPUMax}, Value: node.Limit(500)}}
	if err := g.renew(); err != nil || g.health.Err(health.State) != nil || g.health.Err(health.Bounds) == nil {
		t.Errorf("on a full file system: %v, %v", err, g.health.All())
	}
	if g.lease.HasExpired() {
		t.Error("the lease is not prolonged")
	}
	if err := os.RemoveAll(next); err != nil {
		t.Fatal(err)
	}
	if err := g.renew(); err != nil || len(g.health.All()) != 0 {
		t.Errorf("with space again: %v, %v", err, g.health.All())
	}
}

// TestOnlyABoundOfAGoneCgroupIsDropped gives the guard safe bounds of a cgroup that does
// not exist, and of cgroups that cannot be looked up: the kernel refuses their paths,
// which are too long. Such a cgroup may exist.
func TestOnlyABoundOfAGoneCgroupIsDropped(t *testing.T) {
	g := openTestGuard(t)
	if _, err := g.host.Inode(""); err != nil {
		t.Skipf("this machine has no cgroups: %v", err)
	}
	quota := func(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUMax} }
	gone, hidden, another := node.CgroupPath("tenon-test-gone"), node.CgroupPath(strings.Repeat("x", 5000)), node.CgroupPath(strings.Repeat("y", 5000))
	g.bounds = []lease.Bound{{Knob: quota(gone), Inode: 8, Value: node.Limit(500)}, {Knob: quota(hidden), Inode: 7, Value: node.Limit(500)}}
	var wants []plan.Want
	for _, p := range []node.CgroupPath{gone, hidden, another} {
		wants = append(wants, plan.Want{Intent: plan.Set, Knob: quota(p), Value: node.Limit(300), Owner: plan.OwnerSuppress, BE: true})
	}
	if err := g.writeBounds(wants); err != nil {
		t.Fatal(err)
	}
	if want := (lease.Bound{Knob: quota(hidden), Inode: 7, Value: node.Limit(300)}); len(g.bounds) != 1 || g.bounds[0] != want {
		t.Errorf("the bounds are %.200v", g.bounds)
	}
	if g.health.Err(health.Bounds) == nil {
		t.Error("the bound that is missing is no trouble")
	}
	if err := g.writeBounds(nil); err != nil || len(g.health.All()) != 0 || len(g.bounds) != 0 {
		t.Errorf("without bounds: %v, %v", err, g.health.All())
	}
}

// openTestGuard opens a guard whose lease is in a directory of its own.
func openTestGuard(t *testing.T) *guard {
	t.Helper()
	dir := t.TempDir()
	h, err := host.Open(host.Options{JournalDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	g, err := openGuard(dir, proc.Default(), h, new(lease.Machine), new(health.Health), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.close() })
	return g
}

// TestTheGuardTicksForOthers checks that the channel ticks gets a value at each
// renewal, even if its receiver was busy for a while.
func TestTheGuardTicksForOthers(t *testing.T) {
	g := openTestGuard(t)
	ctx, stop := context.WithTimeout(t.Context(), 5*lease.Renewal+lease.Renewal/2)
	defer stop()
	kept := make(chan error, 1)
	go func() { kept <- g.keep(ctx, nil) }()
	time.Sleep(3*lease.Renewal + lease.Renewal/2)
	n := 0
	for waiting := true; waiting; {
		select {
		case <-g.ticks:
			n++
		case err := <-kept:
			waiting = false
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("keep: %v", err)
			}
		}
	}
	if n == 0 {
		t.Error("no tick")
	}
}

// TestOnlyTheHolderOfTheMachineRestoresIt removes the lock file of a daemon. If
// another daemon has locked a new file, the first one must not restore the node
// when it leaves. It must do so if no other daemon came.
func TestOnlyTheHolderOfTheMachineRestoresIt(t *testing.T) {
	for name, other := range map[string]bool{"another daemon": true, "no other daemon": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "machine.lock")
			machine, err := lease.HoldMachine(path, "one")
			if err != nil {
				t.Fatal(err)
			}
			defer machine.Close()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if other {
				second, err := lease.HoldMachine(path, "two")
				if err != nil {
					t.Fatal(err)
				}
				defer second.Close()
			}
			restored := false
			o := Options{Log: slog.New(slog.DiscardHandler), Leave: func() error {
				restored = true
				return nil
			}}
			if err := o.leave(machine); err != nil || restored == other {
				t.Errorf("the first daemon restored the node: %v; %v", restored, err)
			}
		})
	}
}
