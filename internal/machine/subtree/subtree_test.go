package subtree_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// treeOf returns a cgroup v2 tree that consists of the given plain files.
func treeOf(t *testing.T, files map[string]string) *cgroup.Tree {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	put("proc/self/mountinfo", "31 24 0:28 / "+dir+"/v2 rw - cgroup2 cgroup2 rw\n")
	put("v2/cgroup.controllers", "cpu\n")
	for name, text := range files {
		put(filepath.Join("v2", name), text)
	}
	tree, err := cgroup.Detect(filepath.Join(dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestAllBelowIsFoundButWhatIsSkipped(t *testing.T) {
	tree := treeOf(t, map[string]string{
		"be/cgroup.procs": "1\n", "be/a/cgroup.procs": "2\n", "be/a/inner/cgroup.procs": "3\n", "be/b/cgroup.procs": "4\n",
		"be/cgroup.threads": "1\n", "be/a/cgroup.threads": "2\n20\n", "be/a/inner/cgroup.threads": "3\n", "be/b/cgroup.threads": "4\n",
	})
	if got, want := subtree.Cgroups(tree, nil, "be"), []node.CgroupPath{"be/a", "be/a/inner", "be/b"}; !slices.Equal(got, want) {
		t.Errorf("cgroups %v, want %v", got, want)
	}
	var pids []int
	subtree.EachProcess(tree, "be", func(pid int) { pids = append(pids, pid) })
	if want := []int{1, 2, 3, 4}; !slices.Equal(pids, want) {
		t.Errorf("processes %v, want %v", pids, want)
	}
	if got, err := subtree.Threads(tree, "be"); err != nil || !slices.Equal(got, []int{1, 2, 20, 3, 4}) {
		t.Errorf("threads %v, %v", got, err)
	}
	got, err := subtree.ThreadsBut(tree, "be", func(p node.CgroupPath) bool { return p == "be/a" })
	if err != nil || !slices.Equal(got, []int{1, 4}) {
		t.Errorf("threads %v, %v; want those outside be/a", got, err)
	}
	if _, err := subtree.Threads(tree, "gone"); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("of a cgroup that is gone: %v", err)
	}
}

// TestOneCgroupThatCannotBeReadHidesNoThreadOfOthers replaces a cgroup's list of
// threads by a directory, which cannot be read as a file.
func TestOneCgroupThatCannotBeReadHidesNoThreadOfOthers(t *testing.T) {
	tree := treeOf(t, map[string]string{
		"be/cgroup.threads": "1\n", "be/a/cgroup.threads": "2\n", "be/bad/inner/cgroup.threads": "3\n", "be/c/cgroup.threads": "4\n",
		"be/bad/cgroup.threads/cgroup.threads": "", "be/bad/cgroup.procs": "9\n",
	})
	got, err := subtree.Threads(tree, "be")
	missed, rest := partial.Split(err)
	if rest != nil || missed == nil || len(missed.Misses) != 1 || missed.Misses[0].Path != "be/bad" {
		t.Errorf("%v, want that be/bad is named", err)
	}
	// The directory cgroup.threads is a cgroup for this test, and has no threads.
	if !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("threads %v", got)
	}
	if _, err := subtree.Threads(tree, "be/bad"); err == nil || partial.Is(err) {
		t.Errorf("the cgroup itself: %v", err)
	}
}
