package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/mounts"
)

// attached starts a shell in a group. The shell waits for a line before it runs
// the script, so that every child starts inside the group.
func attached(t *testing.T, tree *Tree, path, script string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read line; "+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(cmd) })
	if err := tree.Attach(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func within(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func freezable(t *testing.T, tree *Tree, path string) {
	t.Helper()
	if _, err := tree.IsFrozen(path); err != nil {
		t.Skipf("groups cannot be frozen here: %v", err)
	}
}

// freeze freezes a group and thaws it when the test ends, because frozen
// processes cannot die.
func freeze(t *testing.T, tree *Tree, path string) {
	t.Helper()
	t.Cleanup(func() { _ = tree.Freeze(path, false) })
	within(t, "all stand still", func() bool {
		if err := tree.Freeze(path, true); err != nil {
			t.Fatal(err)
		}
		still, err := tree.HasStopped(path)
		return still && err == nil
	})
}

func TestAFrozenGroupStandsStillWithAllBelowIt(t *testing.T) {
	tree, path := kernelGroup(t)
	freezable(t, tree, path)
	child := path + "/a"
	if err := tree.Make(child); err != nil {
		t.Fatal(err)
	}
	attached(t, tree, child, "while :; do :; done")
	freeze(t, tree, path)
	if own, err := tree.IsFrozen(path); !own || err != nil {
		t.Errorf("frozen: %v, %v", own, err)
	}
	if own, err := tree.IsFrozen(child); own || err != nil {
		t.Errorf("Frozen of the child must ignore its parent: %v, %v", own, err)
	}
	before, err := tree.CPUUse(child)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond)
	if after, err := tree.CPUUse(child); err != nil || after.Usage > before.Usage+5*time.Millisecond {
		t.Errorf("the frozen group used %v, %v", after.Usage-before.Usage, err)
	}
	if err := tree.Freeze(path, false); err != nil {
		t.Fatal(err)
	}
	within(t, "it goes on", func() bool {
		after, err := tree.CPUUse(child)
		return err == nil && after.Usage > before.Usage+20*time.Millisecond
	})
}

// TestKillEndsWhatForks kills a group whose processes fork as fast as they can.
// Whatever the method of the kill, the group must be empty soon.
func TestKillEndsWhatForks(t *testing.T) {
	for name, kill := range map[string]func(*Tree, string) error{
		"by the kernel's best method": (*Tree).Kill,
		"one by one, frozen":          (*Tree).hunt,
		"one by one":                  func(tree *Tree, path string) error { return tree.withoutFreezer().hunt(path) },
	} {
		t.Run(name, func(t *testing.T) {
			tree, path := kernelGroup(t)
			if err := tree.WriteLimit(path, "pids.max", Maximum{Max: 40}); err != nil {
				t.Fatal(err)
			}
			// In each chain, a process starts the next one and ends.
			attached(t, tree, path, `export NEXT='sh -c "$NEXT" & exit'; for i in 1 2 3 4 5; do sh -c "$NEXT" & done; exec sleep 60`)
			within(t, "it forks", func() bool { n, err := tree.PIDsCurrent(path); return err == nil && n > 3 })
			within(t, "it is empty", func() bool {
				if err := kill(tree, path); err != nil {
					t.Fatal(err)
				}
				lives, err := tree.IsPopulated(path)
				return err == nil && !lives
			})
		})
	}
}

// withoutFreezer returns a copy of t that has no freezer hierarchy.
func (t *Tree) withoutFreezer() *Tree {
	of := maps.Clone(t.byController)
	delete(of, freezer)
	if t.Version() == 2 {
		return t // v2 always has a freezer
	}
	return &Tree{byController: of, hierarchies: slices.DeleteFunc(slices.Clone(t.hierarchies), func(h *hierarchy) bool { return h == t.byController[freezer] })}
}

func TestKillEndsWhatIsFrozen(t *testing.T) {
	tree, path := kernelGroup(t)
	freezable(t, tree, path)
	child := path + "/a"
	if err := tree.Make(child); err != nil {
		t.Fatal(err)
	}
	attached(t, tree, child, "trap '' TERM; while :; do sleep 1; done")
	freeze(t, tree, path)
	if err := tree.Kill(path); err != nil {
		t.Fatal(err)
	}
	within(t, "it is empty", func() bool { lives, err := tree.IsPopulated(path); return err == nil && !lives })
	if err := tree.Freeze(path, false); err != nil {
		t.Error(err)
	}
}

func TestASignalReachesTheGroupAndNobodyElse(t *testing.T) {
	tree, path := kernelGroup(t)
	in, out := path+"/in", path+"/out"
	for _, p := range []string{in, out} {
		if err := tree.Make(p); err != nil {
			t.Fatal(err)
		}
	}
	attached(t, tree, in, "while :; do sleep 1; done")
	other := attached(t, tree, out, "while :; do sleep 1; done")
	if n, err := tree.Signal(in, syscall.SIGTERM); err != nil || n == 0 {
		t.Fatalf("%d processes received the signal, %v", n, err)
	}
	within(t, "the group is empty", func() bool {
		_, _ = tree.Signal(in, syscall.SIGTERM) // also ends children that were forked meanwhile
		lives, err := tree.IsPopulated(in)
		return err == nil && !lives
	})
	if lives, err := tree.IsPopulated(path); !lives || err != nil {
		t.Errorf("populated: %v, %v", lives, err)
	}
	if ids, err := tree.ProcsBelow(out); err != nil || !slices.Contains(ids, other) {
		t.Errorf("the others are %v, %v", ids, err)
	}
	for _, err := range []error{tree.Kill(""), func() error { _, err := tree.Signal("", syscall.SIGTERM); return err }()} {
		if err == nil {
			t.Error("Kill or Signal accepted the root group")
		}
	}
}

// unifiedGroup makes a group in the v2 hierarchy, also on a node where the
// controllers are on v1. When the test ends, it removes the group and all groups
// below it.
func unifiedGroup(t *testing.T) (*Tree, string) {
	t.Helper()
	all, err := mounts.Read("/proc", "cgroup2")
	if err != nil {
		skip(t, err)
	}
	if len(all) == 0 {
		t.Skip("cgroup v2 is not mounted")
	}
	m := wholeFirst(all, func(mounts.Mount) bool { return true })[0]
	tree := &Tree{hierarchies: []*hierarchy{{version: 2, mount: m.Point}}}
	path := fmt.Sprintf("tenon-test-%d-%d", os.Getpid(), groupsMade.Add(1))
	err = os.Mkdir(filepath.Join(m.Point, path), 0o755)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	return tree, path
}

// TestWorkWithAThreadedGroupIsEnded signals a group with a threaded group below
// it, as libvirt makes them for the threads of virtual CPUs. The kernel refuses
// to read cgroup.procs of the threaded group.
func TestWorkWithAThreadedGroupIsEnded(t *testing.T) {
	tree, path := unifiedGroup(t)
	dir := filepath.Join(tree.hierarchies[0].mount, path, "vcpu")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.type"), []byte("threaded"), 0); err != nil {
		t.Fatal(err)
	}
	cmd := start(t, "sleep", "60")
	pid := cmd.Process.Pid
	if err := errors.Join(tree.Attach(path, pid), tree.AttachThread(path+"/vcpu", pid)); err != nil {
		t.Fatal(err)
	}
	if ids, err := tree.ProcsBelow(path); err != nil || !slices.Equal(ids, []int{pid}) {
		t.Errorf("processes %v, %v, want %d", ids, err, pid)
	}
	if ids, err := tree.ProcsBelow(path + "/vcpu"); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("processes of the threaded group itself: %v, %v, want EOPNOTSUPP", ids, err)
	}
	if n, err := tree.Signal(path, syscall.SIGTERM); err != nil || n != 1 {
		t.Fatalf("%d processes received the signal, %v", n, err)
	}
	_ = cmd.Wait()
	within(t, "the group is empty", func() bool { lives, err := tree.IsPopulated(path); return err == nil && !lives })
}
