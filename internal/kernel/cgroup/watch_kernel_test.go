package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// watchKernel makes a group in the real hierarchy and watches the hierarchy.
func watchKernel(t *testing.T) (w *Watcher, path, dir string) {
	t.Helper()
	tree, path := kernelGroup(t)
	w, err := tree.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	dir, err = tree.hierarchies[0].dir(path)
	if err != nil {
		t.Fatal(err)
	}
	return w, path, dir
}

// seesBelow waits until the Watcher knows all groups below path.
func seesBelow(t *testing.T, w *Watcher, path, dir string) {
	t.Helper()
	want := walk(t, dir)
	known := func() []string {
		var below []string
		for _, p := range w.Groups() {
			if rel, ok := strings.CutPrefix(p, path+"/"); ok {
				below = append(below, rel)
			}
		}
		return below
	}
	waitUntil(t, func() bool { return slices.Equal(known(), want) }, func() string {
		return fmt.Sprintf("the watcher knows %d groups, but %d exist:\n%v\n%v", len(known()), len(want), known(), want)
	})
}

func TestKernelTellsOfAThousandGroupsThatComeAndGo(t *testing.T) {
	w, path, dir := watchKernel(t)
	const parents, each = 20, 49
	began := time.Now()
	for i := range parents {
		for j := range each {
			makeDir(t, dir, fmt.Sprintf("pod%d/c%d", i, j))
		}
	}
	seesBelow(t, w, path, dir)
	t.Logf("%d groups made and known after %v", parents*(each+1), time.Since(began))
	seesWatches(t, w)
	began = time.Now()
	for i := range parents {
		for j := range each {
			remove(t, dir, fmt.Sprintf("pod%d/c%d", i, j))
		}
		if i%2 == 0 {
			remove(t, dir, fmt.Sprintf("pod%d", i))
		}
	}
	seesBelow(t, w, path, dir)
	t.Logf("most of them removed and forgotten after %v", time.Since(began))
	seesWatches(t, w)
	if err := w.DegradedReason(); err != nil {
		t.Error(err)
	}
}

func remove(t *testing.T, path ...string) {
	t.Helper()
	if err := os.Remove(filepath.Join(path...)); err != nil {
		t.Fatal(err)
	}
}

func TestStormOfCgroupsEndsInTheTruth(t *testing.T) {
	w, path, dir := watchKernel(t)
	for range 3 {
		churn(t, dir, 4, 300, false)
		seesBelow(t, w, path, dir)
		seesWatches(t, w)
	}
}

func TestNewGroupIsToldOfWithoutALook(t *testing.T) {
	w, path, dir := watchKernel(t)
	if w.DegradedReason() != nil {
		t.Fatal(w.DegradedReason())
	}
	var worst time.Duration
	for i := range 50 {
		name := fmt.Sprintf("new%d", i)
		began := time.Now()
		makeDir(t, dir, name)
		for known := false; !known; { // other processes may change groups as well
			changes(t, w)
			_, known = slices.BinarySearch(w.Groups(), path+"/"+name)
		}
		worst = max(worst, time.Since(began))
	}
	t.Logf("known after at most %v", worst)
}

// TestLookFindsGroupsThatWereMadeAgain checks that a scan finds a change whose
// events were lost.
func TestLookFindsGroupsThatWereMadeAgain(t *testing.T) {
	tree, path := kernelGroup(t)
	dir, err := tree.hierarchies[0].dir(path)
	if err != nil {
		t.Fatal(err)
	}
	lookAround(t, tree, path, dir, func() {
		remove(t, dir, "a/b/c")
		remove(t, dir, "a/b")
		remove(t, dir, "a")
		makeDir(t, dir, "a/b/d")
	})
}

func TestV1LookFindsRenamedGroups(t *testing.T) {
	tree, path := v1Group(t, cpu)
	dir, err := tree.Dir(cpu, path)
	if err != nil {
		t.Fatal(err)
	}
	lookAround(t, tree, path, dir, func() {
		if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "z")); err != nil {
			t.Fatal(err)
		}
	})
}

// lookAround scans before and after a change, and handles no events.
func lookAround(t *testing.T, tree *Tree, path, dir string, change func()) {
	t.Helper()
	makeDir(t, dir, "a/b/c")
	w := newWatcher(tree.hierarchies[0], time.Hour)
	w.look(t.Context())
	defer w.shut()
	seesBelow(t, w, path, dir)
	change()
	w.look(t.Context())
	seesBelow(t, w, path, dir)
	seesWatches(t, w)
	for watch, group := range w.byWatch {
		if w.known[group] == nil || w.known[group].watch != watch {
			t.Errorf("watch %d is of %q, which is known as %+v", watch, group, w.known[group])
		}
	}
	if w.missed != nil {
		t.Error(w.missed)
	}
}

func TestV1RenamedGroupKeepsWhatIsBelow(t *testing.T) {
	tree, path := v1Group(t, cpu)
	w, err := tree.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	dir, err := tree.Dir(cpu, path)
	if err != nil {
		t.Fatal(err)
	}
	makeDir(t, dir, "a/b/c")
	seesBelow(t, w, path, dir)
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "z")); err != nil {
		t.Fatal(err)
	}
	seesBelow(t, w, path, dir)
	makeDir(t, dir, "z/b/d")
	seesBelow(t, w, path, dir)
	seesWatches(t, w)
}
