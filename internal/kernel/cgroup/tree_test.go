package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// fixture unpacks a txtar archive into a directory and detects the tree in it.
// The word ROOT in a file of the archive stands for the directory.
func fixture(t *testing.T, archive string) *Tree {
	t.Helper()
	tree, err := detectFixture(t, archive)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func detectFixture(t *testing.T, archive string) (*Tree, error) {
	t.Helper()
	root := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(f.Data), "ROOT", root)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Detect(filepath.Join(root, "proc"))
}

// content returns the present text of a file in a fixture tree.
func content(t *testing.T, tree *Tree, controller, path, file string) string {
	t.Helper()
	dir, err := tree.Dir(controller, path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

const (
	onlyV2 = `
-- proc/self/mountinfo --
24 1 0:22 / / rw,relatime shared:1 - ext4 /dev/root rw
31 24 0:28 / ROOT/v2 rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
-- v2/cgroup.controllers --
cpuset cpu io memory hugetlb pids rdma misc
`
	onlyV1 = `
-- proc/self/mountinfo --
31 23 0:28 / ROOT rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / ROOT/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / ROOT/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / ROOT/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / ROOT/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / ROOT/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / ROOT/blkio rw,relatime - cgroup cgroup rw,blkio
41 31 0:38 / ROOT/freezer rw,relatime - cgroup cgroup rw,freezer
`
)

func TestEachControllerIsFoundWhereItLives(t *testing.T) {
	type place struct {
		Version int
		Mount   string
	}
	tests := map[string]struct {
		archive string
		version int
		want    map[string]place
	}{
		"v2 alone": {onlyV2, 2, map[string]place{
			"cpu": {2, "v2"}, "cpuacct": {2, "v2"}, "cpuset": {2, "v2"}, "memory": {2, "v2"}, "pids": {2, "v2"}, "io": {2, "v2"},
		}},
		"v1 alone": {onlyV1, 1, map[string]place{
			"cpu": {1, "cpu"}, "cpuacct": {1, "cpuacct"}, "cpuset": {1, "cpuset"}, "memory": {1, "memory"}, "pids": {1, "pids"}, "io": {1, "blkio"}, "freezer": {1, "freezer"},
		}},
		"v1 with an empty v2 tree": {`
-- proc/self/mountinfo --
32 31 0:29 / ROOT/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / ROOT/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / ROOT/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / ROOT/unified rw,relatime - cgroup2 cgroup2 rw
-- unified/cgroup.controllers --

`, 1, map[string]place{"cpu": {1, "cpu"}, "memory": {1, "memory"}}},
		"systemd hybrid with shared hierarchies": {`
-- proc/self/mountinfo --
27 25 0:24 / ROOT/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
28 25 0:25 / ROOT/systemd rw,nosuid shared:11 - cgroup cgroup rw,xattr,name=systemd
33 25 0:30 / ROOT/cpu,cpuacct rw,nosuid shared:16 - cgroup cgroup rw,cpu,cpuacct
34 25 0:31 / ROOT/net_cls,net_prio rw,nosuid shared:17 - cgroup cgroup rw,net_cls,net_prio
-- unified/cgroup.controllers --
`, 1, map[string]place{"cpu": {1, "cpu,cpuacct"}, "cpuacct": {1, "cpu,cpuacct"}}},
		"cpu on v1 and memory on v2": {`
-- proc/self/mountinfo --
27 25 0:24 / ROOT/unified rw - cgroup2 cgroup2 rw
33 25 0:30 / ROOT/cpu rw - cgroup cgroup rw,cpuacct,cpu
-- unified/cgroup.controllers --
memory pids
`, 1, map[string]place{
			"cpu": {1, "cpu"}, "cpuacct": {1, "cpu"}, "memory": {2, "unified"}, "pids": {2, "unified"},
		}},
		"memory alone on v2": {`
-- proc/self/mountinfo --
27 25 0:24 / ROOT/v2 rw - cgroup2 cgroup2 rw
-- v2/cgroup.controllers --
memory
`, 2, map[string]place{"memory": {2, "v2"}}},
		"bind mounts of single groups": {`
-- proc/self/mountinfo --
26 25 0:24 /pod/a ROOT/bind rw - cgroup2 cgroup2 rw
27 25 0:24 / ROOT/v2\040tree rw - cgroup2 cgroup2 rw
28 25 0:24 /pod/b ROOT/bind rw - cgroup2 cgroup2 rw
-- v2 tree/cgroup.controllers --
cpu
`, 2, map[string]place{"cpu": {2, "v2 tree"}, "cpuacct": {2, "v2 tree"}}},
		"a container without a cgroup namespace": {`
-- proc/self/mountinfo --
27 25 0:24 /docker/abc ROOT/v2 ro - cgroup2 cgroup2 rw
-- v2/cgroup.controllers --
cpu
`, 2, map[string]place{"cpu": {2, "v2"}, "cpuacct": {2, "v2"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := fixture(t, tc.archive)
			got := map[string]place{}
			for _, c := range controllers {
				if dir, err := tree.Dir(c, ""); err == nil {
					got[c] = place{tree.VersionOf(c), filepath.Base(dir)}
				} else if tree.Has(c) || tree.VersionOf(c) != 0 || !errors.Is(err, ErrUnsupported) {
					t.Errorf("controller %s: %v, although Has returns true", c, err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if tree.Version() != tc.version {
				t.Errorf("version %d, want %d", tree.Version(), tc.version)
			}
		})
	}
}

func TestRecursiveProtectionIsAMountOption(t *testing.T) {
	v2 := func(options, controllers string) string {
		return "-- proc/self/mountinfo --\n31 24 0:28 / ROOT/v2 rw,relatime - cgroup2 cgroup2 rw" + options +
			"\n-- v2/cgroup.controllers --\n" + controllers + "\n"
	}
	for archive, want := range map[string]bool{
		v2(",nsdelegate,memory_recursiveprot", "cpu memory"): true,
		v2(",nsdelegate,memory_localevents", "cpu memory"):   false,
		v2(",memory_recursiveprot", "cpu"):                   false, // memory is elsewhere, or off
		onlyV1:                                               false,
	} {
		tree := fixture(t, archive)
		if got := tree.RecursiveProtection; got != want || tree.KeepOpen(1).RecursiveProtection != want {
			t.Errorf("recursive protection %t, want %t:\n%s", got, want, archive)
		}
	}
}

func TestTreeAboveTheCgroupNamespaceIsTold(t *testing.T) {
	for root, want := range map[string]bool{"/": false, "/docker/abc": false, "/..abc": false, "/..": true, "/../../..": true} {
		v2 := fixture(t, "-- proc/self/mountinfo --\n27 25 0:24 "+root+" ROOT/v2 rw - cgroup2 cgroup2 rw\n-- v2/cgroup.controllers --\ncpu\n")
		v1 := fixture(t, "-- proc/self/mountinfo --\n32 31 0:29 "+root+" ROOT/cpu rw - cgroup cgroup rw,cpu\n")
		if v2.StartsAboveNamespace() != want || v1.StartsAboveNamespace() != want {
			t.Errorf("root %s: %t on v2, %t on v1, want %t", root, v2.StartsAboveNamespace(), v1.StartsAboveNamespace(), want)
		}
	}
}

func TestNodeWithoutControllersIsUnsupported(t *testing.T) {
	for name, archive := range map[string]string{
		"no cgroups": "-- proc/self/mountinfo --\n24 1 0:22 / / rw - ext4 /dev/root rw\n",
		"v2 with nothing delegated": "-- proc/self/mountinfo --\n24 1 0:22 / ROOT/v2 rw - cgroup2 none rw\n" +
			"-- v2/cgroup.controllers --\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := detectFixture(t, archive); !errors.Is(err, ErrUnsupported) {
				t.Errorf("got %v, want ErrUnsupported", err)
			}
		})
	}
	if _, err := detectFixture(t, "-- proc/self/mountinfo --\nnonsense\n"); err == nil || errors.Is(err, ErrUnsupported) {
		t.Errorf("nonsense: got %v, want a parse error", err)
	}
}

func TestPathsThatLeadOutAreRefused(t *testing.T) {
	tree := fixture(t, onlyV2)
	for _, path := range []string{"..", "../x", "/a", "a/../../b", "a//b", "a/", "."} {
		if err := tree.Make(path); err == nil {
			t.Errorf("Make accepted %q", path)
		}
		if err := tree.Remove(path); err == nil {
			t.Errorf("Remove accepted %q", path)
		}
		if tree.Exists(path) {
			t.Errorf("Exists returned true for %q", path)
		}
	}
	if err := tree.Remove(""); err == nil {
		t.Error("removed the root")
	}
}

func TestMakeFillsNewV1CPUSetsFromTheirParent(t *testing.T) {
	tree := fixture(t, onlyV1+`-- cpuset/cpuset.cpus --
0-3
-- cpuset/cpuset.mems --
0
-- cpuset/old/cpuset.cpus --
2
-- cpuset/old/cpuset.mems --

-- cpu/tasks --
-- cpuacct/tasks --
-- memory/tasks --
-- pids/tasks --
-- blkio/tasks --
-- freezer/tasks --
`)
	// The kernel would create files in the new directory, but a fixture does
	// not. So Make fails at its first write. The error shows which value Make
	// wrote.
	err := tree.Make("new")
	if err == nil || !strings.Contains(err.Error(), `write cpuset.cpus "0-3" in new`) {
		t.Errorf("got %v, want it to write the parent's CPUs", err)
	}
	if tree.Exists("new") {
		t.Error("a failed Make left a directory")
	}
	if err := tree.Make("old"); err != nil {
		t.Errorf("an existing group: %v", err)
	}
	if got := content(t, tree, cpuset, "old", "cpuset.cpus"); got != "2" {
		t.Errorf("Make changed the CPUs of an existing group to %q", got)
	}
	for _, c := range controllers {
		if dir, _ := tree.Dir(c, "old"); !exists(dir) {
			t.Errorf("group missing in the hierarchy of %s", c)
		}
	}
}

func TestMakeEnablesControllersOfTheAncestors(t *testing.T) {
	tree := fixture(t, onlyV2+`-- v2/cgroup.subtree_control --
cpu memory
-- v2/a/cgroup.subtree_control --
cpu cpuset io memory pids
-- v2/a/b/cgroup.subtree_control --
`)
	if err := tree.Make("a/b/c"); err != nil {
		t.Fatal(err)
	}
	// In a fixture, a file holds only what was written last.
	for path, want := range map[string]string{"": "+io", "a": "cpu cpuset io memory pids", "a/b": "+io"} {
		if got := content(t, tree, cpu, path, "cgroup.subtree_control"); got != want {
			t.Errorf("subtree_control of %q: %q, want %q", path, got, want)
		}
	}
	if !tree.Exists("a/b/c") {
		t.Error("group was not made")
	}
}
