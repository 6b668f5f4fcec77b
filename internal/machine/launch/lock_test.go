package launch

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

// TestASignalEndsTheWaitForAnotherLauncher holds the lock of a class. A launcher
// that waits for it ends at SIGTERM, and not at a change of the window's size.
func TestASignalEndsTheWaitForAnotherLauncher(t *testing.T) {
	dir := t.TempDir()
	held, err := (&statedir.Queue{Path: filepath.Join(dir, lockName(node.BE))}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	signals := make(chan os.Signal)
	r := &run{Launcher: &Launcher{StateDir: dir, Note: func(string) {}}, Command: Command{Class: node.BE}, caught: signals}
	ended := make(chan error, 1)
	go func() {
		_, err := r.lock(t.Context(), 0)
		ended <- err
	}()
	signals <- unix.SIGWINCH
	select {
	case err := <-ended:
		t.Fatalf("the wait ended at SIGWINCH: %v", err)
	case signals <- unix.SIGTERM:
	}
	if i, is := errors.AsType[interruption](<-ended); !is || i.Signal != unix.SIGTERM {
		t.Errorf("the wait ended with %v, want SIGTERM", err)
	}
}

// TestLSDoesNotWaitForBE starts a latency-sensitive command while a best-effort
// launcher holds the lock of its class, and the other way round.
func TestLSDoesNotWaitForBE(t *testing.T) {
	b := newBench(t)
	for held, started := range map[node.Class]node.Class{node.BE: node.LS, node.LS: node.BE} {
		lock, err := (&statedir.Queue{Path: filepath.Join(b.dir, lockName(held))}).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r, err := b.run(script("job", started, "exit 3")); err != nil || r.Status != 3 {
			t.Errorf("%s beside a launcher of %s: status %d, %v", started, held, r.Status, err)
		}
		_ = lock.Close()
	}
}

// TestALauncherLeavesBEForTheLock puts this process into a best-effort cgroup, as
// if a best-effort command had called tenon run. It must be outside while it has
// the lock, and inside again afterwards.
func TestALauncherLeavesBEForTheLock(t *testing.T) {
	b := newBench(t)
	group := b.Root.Join(BestEffortGroup).Join("outer")
	if err := b.Tree.Make(string(group)); err != nil {
		t.Fatal(err)
	}
	weight, err := b.Tree.ReadCPUWeight(string(group.Parent()))
	if err != nil {
		t.Fatal(err)
	}
	weight.Idle, weight.Weight = b.Host.Capabilities().Has(node.FeatureCPUIdle), 0
	if !weight.Idle {
		t.Skip("this kernel has no cpu.idle")
	}
	if err := b.Tree.WriteCPUWeight(string(group.Parent()), weight); err != nil {
		t.Fatal(err)
	}
	r := &run{Launcher: b.Launcher, Command: Command{Name: "inner", Class: node.BE}}
	r.workload = r.Command.Workload(b.Root)
	home, before, err := r.dirsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if back := r.stepAside(); back != nil {
		back()
	}
	if _, now, err := r.dirsOf(os.Getpid()); err != nil || now != before {
		t.Fatalf("a launcher outside best-effort work is in %s (%v), before in %s", now, err, before)
	}
	if err := b.Tree.Attach(string(group), os.Getpid()); err != nil {
		t.Fatal(err)
	}
	defer attachAll(home, os.Getpid())
	back := r.stepAside()
	if _, now, err := r.dirsOf(os.Getpid()); err != nil || r.isBestEffort(now) {
		t.Errorf("the launcher is in %s while it has the lock (%v)", now, err)
	}
	back()
	if pids, err := b.Tree.Procs(string(group)); err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("the launcher did not go back: %v (%v)", pids, err)
	}
}

// TestALauncherRaisesItselfForTheLock checks the same for a launcher whose threads
// have the lowest priority.
func TestALauncherRaisesItselfForTheLock(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may raise the priority of a thread again")
	}
	tid := make(chan int)
	end := make(chan struct{})
	defer close(end)
	go func() {
		// The goroutine ends with its thread, because it does not unlock it.
		tid <- lockedThread()
		<-end
	}()
	thread := <-tid
	threads := func() ([]int, error) { return []int{thread}, nil }
	for _, had := range []task.SchedAttr{{Policy: task.Idle, Nice: 19}, {Policy: task.Idle}, {Policy: task.Normal, Nice: 7}, {Policy: task.Batch, Nice: 3}, {Policy: task.Normal, Nice: -5}} {
		// With the policy Idle, the kernel keeps the present nice value.
		if err := errors.Join(task.SetAttr(thread, task.SchedAttr{Policy: task.Normal, Nice: had.Nice}), task.SetAttr(thread, had)); err != nil {
			t.Fatal(err)
		}
		back := raise(threads)
		now, err := task.Attr(thread)
		low := had.Policy == task.Idle || had.Policy == task.Normal && had.Nice > 0
		if err != nil || low && (now.Policy != task.Normal || now.Nice != 0) || !low && (now.Policy != had.Policy || now.Nice != had.Nice) {
			t.Errorf("a thread with %v nice %d has %v nice %d while it has the lock (%v)", had.Policy, had.Nice, now.Policy, now.Nice, err)
		}
		back()
		if now, err := task.Attr(thread); err != nil || now.Policy != had.Policy || now.Nice != had.Nice {
			t.Errorf("a thread with %v nice %d has %v nice %d afterwards (%v)", had.Policy, had.Nice, now.Policy, now.Nice, err)
		}
	}
}

// TestTheHolderOfTheLockIsNamed checks the message of a launcher that waits long.
func TestTheHolderOfTheLockIsNamed(t *testing.T) {
	dir := t.TempDir()
	r := &run{Launcher: &Launcher{StateDir: dir, Note: func(string) {}}, Command: Command{Class: node.BE}}
	unlock, err := r.lock(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if pid := statedir.Holder(filepath.Join(dir, lockName(node.BE))); pid != os.Getpid() {
		t.Errorf("the lock names process %d, want %d", pid, os.Getpid())
	}
}

// lockedThread keeps the calling goroutine on its thread, and returns the id of
// the thread.
func lockedThread() int {
	runtime.LockOSThread()
	return unix.Gettid()
}
