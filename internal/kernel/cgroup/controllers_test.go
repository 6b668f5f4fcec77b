package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestASubtreeSaysWhichControllersMakeWouldEnable(t *testing.T) {
	tree := fixture(t, onlyV2+`-- v2/cgroup.subtree_control --
cpu hugetlb
-- v2/a/cpu.weight --
100
-- v2/b/cpu.weight --
100
`)
	s, err := ReadSubtree(tree, "")
	if err != nil || !slices.Equal(s.Enabled, []string{"cpu", "hugetlb"}) || !slices.Equal(s.Disabled, []string{"cpuset", "io", "memory", "pids"}) {
		t.Errorf("%+v, %v", s, err)
	}
	own, err1 := tree.Inode("")
	a, err2 := tree.Inode("a")
	if err := errors.Join(err1, err2); err != nil || s.Inode != own || s.Children["a"] != a || len(s.Children) != 2 {
		t.Errorf("%+v, %v, want inode %d, and a with %d", s, err, own, a)
	}
	if _, err := ReadSubtree(tree, "gone"); !errors.Is(err, ErrGone) {
		t.Errorf("a group that does not exist: %v", err)
	}
	if _, err := ReadSubtree(fixture(t, onlyV1), ""); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on v1: %v", err)
	}
}

// TestABusyGroupPassesOnNothing makes a group in the root cgroup of a container,
// which has processes. The kernel would accept the controller cpu there, and make
// the container's cgroup a threaded domain.
func TestABusyGroupPassesOnNothing(t *testing.T) {
	for name, c := range map[string]struct {
		files string
		busy  bool
	}{
		"the root of the machine":            {"-- v2/cgroup.procs --\n1\n", false},
		"the root of a container":            {"-- v2/cgroup.procs --\n1\n-- v2/cgroup.type --\ndomain\n", true},
		"the root of a container's systemd":  {"-- v2/cgroup.procs --\n-- v2/cgroup.type --\ndomain\n", false},
		"processes that this user sees as 0": {"-- v2/cgroup.procs --\n0\n-- v2/cgroup.type --\ndomain\n", true},
	} {
		tree := fixture(t, onlyV2+"-- v2/cgroup.subtree_control --\n"+c.files)
		s, err := ReadSubtree(tree, "")
		if err != nil || s.Busy != c.busy {
			t.Errorf("%s: busy %v, %v", name, s.Busy, err)
		}
		if err := tree.Make("be"); err != nil {
			t.Fatal(err)
		}
		if enabled := strings.TrimSpace(content(t, tree, "cpu", "", "cgroup.subtree_control")); (enabled == "") != c.busy {
			t.Errorf("%s: subtree_control is %q", name, enabled)
		}
	}
}

// TestOnlyChangedAndUnknownFilesAreSettings checks HasSettings with one file at
// a time.
func TestOnlyChangedAndUnknownFilesAreSettings(t *testing.T) {
	for file, c := range map[string]struct {
		text string
		mode os.FileMode
		want bool
	}{
		"memory.max":         {"max\n", 0o644, false},
		"memory.high":        {"4096\n", 0o644, true},
		"memory.low":         {"0\n", 0o644, false},
		"memory.current":     {"8192\n", 0o444, false},
		"memory.peak":        {"8192\n", 0o644, false},
		"memory.pressure":    {"some avg10=0.00\n", 0o644, false},
		"memory.reclaim":     {"", 0o200, false},
		"memory.of_a_vendor": {"0\n", 0o644, true},
		"cpu.weight":         {"50\n", 0o644, false}, // of another controller
	} {
		tree := fixture(t, onlyV2+"-- v2/a/cgroup.procs --\n")
		path := filepath.Join(tree.hierarchies[0].mount, "a", file)
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		if got, err := HasSettings(tree, "a", "memory"); err != nil || got != c.want {
			t.Errorf("%s with %q: %v, %v, want %v", file, c.text, got, err, c.want)
		}
	}
}

// TestANewGroupHasNoSettings checks the values of a new group on the running
// kernel.
func TestANewGroupHasNoSettings(t *testing.T) {
	tree, path := v2Group(t)
	for _, c := range passedOn {
		if set, err := HasSettings(tree, path, c); err != nil || set {
			t.Errorf("%s: %v, %v", c, set, err)
		}
	}
	if err := tree.WriteLimit(path, "pids.max", Maximum{Max: 7}); err != nil {
		t.Fatal(err)
	}
	if set, err := HasSettings(tree, path, pids); err != nil || !set {
		t.Errorf("with a limit: %v, %v", set, err)
	}
}

// TestAControllerThatAChildPassesOnStaysEnabled disables a controller for the
// children of a group.
func TestAControllerThatAChildPassesOnStaysEnabled(t *testing.T) {
	tree, path := v2Group(t)
	if err := tree.Make(path + "/a/b"); err != nil {
		t.Fatal(err)
	}
	if err := PassOn(tree, path, pids, false); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("while a child passes it on: %v, want EBUSY", err)
	}
	if err := errors.Join(PassOn(tree, path+"/a", pids, false), PassOn(tree, path, pids, false), PassOn(tree, path, pids, false)); err != nil {
		t.Error(err)
	}
	if s, err := ReadSubtree(tree, path); err != nil || slices.Contains(s.Enabled, pids) || !slices.Contains(s.Disabled, pids) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := PassOn(tree, path, pids, true); err != nil {
		t.Error(err)
	}
}
