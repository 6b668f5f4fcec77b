package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/partial"
)

// deepChain makes directories below dir, each in the former, until the path is
// longer than the kernel takes. It makes each one relative to the former, which
// every user may do. The test removes them in the same way.
func deepChain(t *testing.T, dir string) {
	t.Helper()
	name := strings.Repeat("d", 240)
	var open []int
	t.Cleanup(func() {
		for i, fd := range slices.Backward(open) {
			if i > 0 {
				if err := unix.Unlinkat(open[i-1], name, unix.AT_REMOVEDIR); err != nil {
					t.Error(err)
				}
			}
			_ = unix.Close(fd)
		}
	})
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range 20 {
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, fd)
		if err = unix.Mkdirat(fd, name, 0o755); err == nil {
			fd, err = unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	open = append(open, fd)
}

// wide returns a tree of 1,000 groups in plain directories, each with one
// process. One of them has a chain that is too deep below it.
func wide(t *testing.T, version int) (tree *Tree, paths []string) {
	t.Helper()
	root := t.TempDir()
	for i := range 1000 {
		path := fmt.Sprintf("pods/p%03d", i)
		paths = append(paths, path)
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"cgroup.procs", "tasks"} {
			if err := os.WriteFile(filepath.Join(root, path, file), fmt.Appendln(nil, 100000+i), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(root, "pods/cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	deepChain(t, filepath.Join(root, paths[500]))
	return &Tree{hierarchies: []*hierarchy{{version: version, mount: root}}}, paths
}

// missedOne checks that an error names one missed cgroup, in the chain.
func missedOne(t *testing.T, err error, below string) {
	t.Helper()
	missed, rest := partial.Split(err)
	if rest != nil || missed == nil || len(missed.Misses) != 1 || missed.More != 0 ||
		!strings.HasPrefix(missed.Misses[0].Path, below+"/d") || !errors.Is(missed.Misses[0].Err, syscall.ENAMETOOLONG) {
		t.Fatalf("%v, want one cgroup below %s whose name is too long", err, below)
	}
	if text := err.Error(); len(text) > 1000 || strings.Count(text, "file name too long") != 1 {
		t.Errorf("the message has %d bytes: %s", len(text), text)
	}
}

func TestOneBadDirectoryAmongAThousandHidesNoOther(t *testing.T) {
	tree, want := wide(t, 2)
	paths, err := tree.Paths()
	missedOne(t, err, want[500])
	for _, p := range want {
		if _, found := slices.BinarySearch(paths, p); !found {
			t.Errorf("%s is missing", p)
		}
	}
	for _, p := range paths {
		if _, err := tree.Inode(p); err != nil {
			t.Errorf("a path is listed that cannot be found: %v", err)
		}
	}
	ids, err := tree.ProcsBelow("pods")
	if missed, rest := partial.Split(err); rest != nil || missed == nil || len(ids) != 1000 {
		t.Errorf("%d processes, %v", len(ids), err)
	}
	w, err := tree.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !slices.Equal(w.Groups(), paths) || w.DegradedReason() != nil {
		t.Errorf("%d groups are watched, want %d; %v", len(w.Groups()), len(paths), w.DegradedReason())
	}
	missedOne(t, w.Missed(), want[500])
}

// TestAGroupThatEndsIsNotMissed takes the file cgroup.procs from one of a thousand
// groups, as the kernel does before it removes the directory.
func TestAGroupThatEndsIsNotMissed(t *testing.T) {
	tree, paths := wide(t, 1)
	if err := os.Remove(filepath.Join(tree.hierarchies[0].mount, paths[7], "cgroup.procs")); err != nil {
		t.Fatal(err)
	}
	ids, err := tree.ProcsBelow("pods")
	if len(ids) != 999 {
		t.Errorf("%d processes, want 999", len(ids))
	}
	missedOne(t, err, paths[500])
}

// TestNothingIsSaidToBeEmptyThatCannotBeRead asks on v1, where each group must be
// read, whether processes are left.
func TestNothingIsSaidToBeEmptyThatCannotBeRead(t *testing.T) {
	tree, paths := wide(t, 1)
	if some, err := tree.IsPopulated("pods"); !some || err != nil {
		t.Errorf("%v, %v", some, err)
	}
	for _, p := range paths {
		if err := os.WriteFile(filepath.Join(tree.hierarchies[0].mount, p, "cgroup.procs"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if some, err := tree.IsPopulated("pods"); some || !partial.Is(err) {
		t.Errorf("%v, %v: want that it cannot be said", some, err)
	}
	if some, err := tree.IsPopulated(paths[3]); some || err != nil {
		t.Errorf("%v, %v for a group that can be read", some, err)
	}
}

// TestAGroupThatCannotBeLookedUpIsNotGone asks for a path that is too long, and
// for one through a loop of symbolic links.
func TestAGroupThatCannotBeLookedUpIsNotGone(t *testing.T) {
	tree := fixture(t, onlyV2+"-- v2/a/cpu.stat --\nusage_usec 7\n")
	loop := filepath.Join(tree.hierarchies[0].mount, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		strings.Repeat("dddddddd/", 500) + "d": syscall.ENAMETOOLONG,
		"loop/x":                               syscall.ELOOP,
	} {
		if _, err := tree.Inode(path); !errors.Is(err, want) || errors.Is(err, ErrGone) || !tree.Exists(path) {
			t.Errorf("%.20s: %v, exists %v", path, err, tree.Exists(path))
		}
		if _, err := tree.CPUStat(path); !errors.Is(err, want) || errors.Is(err, ErrGone) {
			t.Errorf("%.20s: %v", path, err)
		}
	}
	if _, err := tree.Inode("a/cpu.stat/x"); !errors.Is(err, ErrGone) || tree.Exists("b") {
		t.Errorf("%v", err)
	}
	if paths, err := tree.Paths(); err != nil || !slices.Equal(paths, []string{"a"}) {
		t.Errorf("%v, %v: a link is no group", paths, err)
	}
}

// TestAWatcherMissesOnlyWhatIsTooDeep makes the chain while the watch runs, and
// removes it again.
func TestAWatcherMissesOnlyWhatIsTooDeep(t *testing.T) {
	w, root := watchFixture(t)
	defer w.Close()
	t.Run("while it is there", func(t *testing.T) {
		deepChain(t, filepath.Join(root, "a"))
		waitUntil(t, func() bool { return w.Missed() != nil }, func() string { return "nothing is missed" })
		if err := os.Mkdir(filepath.Join(root, "late"), 0o755); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, func() bool { return slices.Contains(w.Groups(), "late") }, func() string { return fmt.Sprint(len(w.Groups())) })
		if w.DegradedReason() != nil {
			t.Error(w.DegradedReason())
		}
	})
	waitUntil(t, func() bool { return w.Missed() == nil && slices.Equal(w.Groups(), []string{"a", "a/b", "c", "late"}) }, func() string {
		return fmt.Sprintf("%v, %d groups", w.Missed(), len(w.Groups()))
	})
}

func TestUnreadableDirectoriesAreListedAndPassedOver(t *testing.T) {
	tree := fixture(t, onlyV2+"-- v2/a/b/cpu.stat --\n-- v2/c/d/cpu.stat --\n")
	root := tree.hierarchies[0].mount
	closed := filepath.Join(root, "a")
	if err := os.Chmod(closed, 0o300); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(closed, 0o700) }()
	if os.Geteuid() == 0 { // root reads all directories, so this thread looks at files as another user
		for dir := root; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(0) }()
	}
	paths, err := tree.Paths()
	missed, rest := partial.Split(err)
	if rest != nil || missed == nil || !missed.MayHide("a/b") || missed.MayHide("c/x") || !slices.Equal(paths, []string{"a", "c", "c/d"}) {
		t.Errorf("%v, %v", paths, err)
	}
}

// TestRealGroupsTooDeepAreNamedAndPassedOver makes the chain in the kernel's own
// cgroups, and signals the processes beside it.
func TestRealGroupsTooDeepAreNamedAndPassedOver(t *testing.T) {
	tree, path := kernelGroup(t)
	good := path + "/good"
	if err := errors.Join(tree.Make(path+"/far"), tree.Make(good)); err != nil {
		t.Fatal(err)
	}
	deepChain(t, filepath.Join(tree.hierarchies[0].mount, path, "far"))
	paths, err := tree.Paths()
	if missed, rest := partial.Split(err); rest != nil || missed == nil || !slices.Contains(paths, good) {
		t.Errorf("%d paths, %v", len(paths), err)
	}
	cmd := start(t, "sleep", "1000")
	if err := tree.Attach(good, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	n, err := tree.Signal(path, syscall.SIGTERM)
	if n != 1 || !partial.Is(err) {
		t.Errorf("%d processes are signalled, %v", n, err)
	}
	_ = cmd.Wait()
	if err := tree.RemoveAll(path); err == nil || tree.Exists(good) {
		t.Errorf("RemoveAll: %v; the good group is there: %v", err, tree.Exists(good))
	}
}

// TestAGroupMadeAgainIsGoneAndNotUnreadable removes a group and makes it again
// while it is listed, as a user with a cgroup of their own can.
func TestAGroupMadeAgainIsGoneAndNotUnreadable(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]error{"": ErrGone, "cgroup.procs": ErrGone, "cpu.max": ErrUnsupported} {
		if err := lookCause(dir, file, &os.PathError{Op: "open", Err: syscall.ENOENT}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", file, err, want)
		}
	}
	h := &hierarchy{version: 2, mount: dir}
	group := filepath.Join(dir, "group")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.MkdirAll(group+"/child", 0o755)
				_ = os.RemoveAll(group)
			}
		}
	}()
	for range 20_000 {
		if _, err := h.children("group"); err != nil && !errors.Is(err, ErrGone) {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-ended
}
