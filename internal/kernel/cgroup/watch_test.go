package cgroup

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchFixture watches a tree of plain directories.
func watchFixture(t *testing.T) (w *Watcher, root string) {
	t.Helper()
	tree := fixture(t, onlyV2+"-- v2/a/cpu.weight --\n-- v2/a/b/cpu.weight --\n-- v2/c/cpu.weight --\n")
	w, err := tree.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, tree.hierarchies[0].mount
}

func makeDir(t *testing.T, path ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path...), 0o755); err != nil {
		t.Fatal(err)
	}
}

func removeDir(t *testing.T, path ...string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(path...)); err != nil {
		t.Fatal(err)
	}
}

// walk returns the directories that exist below root, sorted.
func walk(t *testing.T, root string) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == root {
			return err
		}
		rel, err := filepath.Rel(root, path)
		dirs = append(dirs, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(dirs)
	return dirs
}

// waitUntil waits until the function done returns true. After a timeout it
// fails the test with the text that the function instead returns.
func waitUntil(t *testing.T, done func() bool, instead func() string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(instead())
		}
	}
}

// changes waits until the Watcher reports a change.
func changes(t *testing.T, w *Watcher) {
	t.Helper()
	select {
	case <-w.Changed():
	case <-time.After(20 * time.Second):
		t.Fatal("no change in 20 s")
	}
}

func seesTruth(t *testing.T, w *Watcher, root string) {
	t.Helper()
	want := walk(t, root)
	waitUntil(t, func() bool { return slices.Equal(w.Groups(), want) }, func() string {
		return fmt.Sprintf("the watcher knows %d groups, but %d exist:\n%v\n%v", len(w.Groups()), len(want), w.Groups(), want)
	})
}

func TestWatcherKnowsWhatIsThereAtTheStart(t *testing.T) {
	w, _ := watchFixture(t)
	if got := w.Groups(); !slices.Equal(got, []string{"a", "a/b", "c"}) {
		t.Errorf("got %v", got)
	}
	if err := w.DegradedReason(); err != nil {
		t.Error(err)
	}
	select {
	case <-w.Changed():
		t.Error("Changed received a value for groups that were there from the start")
	default:
	}
}

func TestWatcherFollowsWhatIsMadeRenamedAndRemoved(t *testing.T) {
	w, root := watchFixture(t)
	for _, change := range []func(){
		func() { makeDir(t, root, "d") },
		func() { makeDir(t, root, "d/e/f/g/h") }, // before the Watcher can watch the parents
		func() { removeDir(t, root, "a") },
		func() { makeDir(t, root, "a/x") }, // the same name, another directory
		func() { makeDir(t, root, "a/x/y") },
		func() {
			if err := os.Rename(filepath.Join(root, "d/e"), filepath.Join(root, "d/z")); err != nil {
				t.Fatal(err)
			}
		},
		func() { makeDir(t, root, "d/z/f/new") },
		func() { removeDir(t, root, "d/z/f/g") },
	} {
		change()
		changes(t, w)
		seesTruth(t, w, root)
	}
}

// TestChangesNamesWhatChanged makes, renames and removes groups. Changes must
// name these groups and no others, and also one that was removed and made again.
func TestChangesNamesWhatChanged(t *testing.T) {
	w, root := watchFixture(t)
	if got := w.Changes(); len(got) != 0 {
		t.Errorf("at first %v have changed", got)
	}
	all, before := map[string]bool{}, map[string]bool{}
	await := func(want ...string) {
		t.Helper()
		maps.Copy(before, all) // the second half of a change may come later
		clear(all)
		waitUntil(t, func() bool {
			for _, p := range w.Changes() {
				all[p] = true
			}
			return !slices.ContainsFunc(want, func(p string) bool { return !all[p] })
		}, func() string { return fmt.Sprintf("changed: %v, want %v", all, want) })
		for p := range all {
			if !before[p] && !slices.Contains(want, p) {
				t.Errorf("changed: %v, want %v", all, want)
			}
		}
	}
	makeDir(t, root, "d")
	await("d")
	removeDir(t, root, "c")
	makeDir(t, root, "c")
	await("c")
	if err := os.Rename(filepath.Join(root, "a"), filepath.Join(root, "z")); err != nil {
		t.Fatal(err)
	}
	await("a", "a/b", "z", "z/b")
}

func TestFilesAreNoChange(t *testing.T) {
	w, root := watchFixture(t)
	if err := os.WriteFile(filepath.Join(root, "a", "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	makeDir(t, root, "after")
	changes(t, w)
	if got := w.Groups(); !slices.Equal(got, []string{"a", "a/b", "after", "c"}) {
		t.Errorf("got %v", got)
	}
}

func TestUnchangedGroupsAreNotListedAgain(t *testing.T) {
	w, root := watchFixture(t)
	first := w.Groups()
	if again := w.Groups(); &first[0] != &again[0] {
		t.Error("Groups returned a new slice without a change")
	}
	if n := testing.AllocsPerRun(10, func() { w.Groups() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	makeDir(t, root, "b")
	changes(t, w)
	if !slices.Equal(first, []string{"a", "a/b", "c"}) {
		t.Errorf("a returned slice has changed: %v", first)
	}
}

func TestWatcherEndsWithItsContext(t *testing.T) {
	tree := fixture(t, onlyV2)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := tree.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-w.ended
	w.Close()
	if w.inotify != nil {
		t.Error("inotify is still open")
	}
}

func TestWatchOfNothingFails(t *testing.T) {
	tree := fixture(t, onlyV2)
	removeDir(t, tree.hierarchies[0].mount)
	if _, err := tree.Watch(t.Context()); err == nil || !strings.Contains(err.Error(), "the root cgroup") {
		t.Errorf("got %v", err)
	}
}

// churn makes, removes and renames groups at random, from several threads.
func churn(t *testing.T, root string, threads, changes int, rename bool) {
	t.Helper()
	var all sync.WaitGroup
	for seed := range threads {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(seed), 3))
			place := func() string {
				path := root
				for range 1 + r.IntN(3) {
					path = filepath.Join(path, string("stuvwxyz"[r.IntN(8)]))
				}
				return path
			}
			for range changes {
				switch r.IntN(5) {
				case 0:
					_ = os.RemoveAll(place())
				case 1:
					_ = os.Remove(place())
				case 2:
					if from := place(); rename {
						_ = os.Rename(from, filepath.Join(filepath.Dir(from), string("stuvwxyz"[r.IntN(8)])))
					}
				default:
					_ = os.MkdirAll(place(), 0o755)
				}
			}
		})
	}
	all.Wait()
}

func TestStormEndsInTheTruth(t *testing.T) {
	w, root := watchFixture(t)
	for range 5 {
		churn(t, root, 4, 400, true)
		seesTruth(t, w, root)
		seesWatches(t, w)
	}
	if err := w.DegradedReason(); err != nil {
		t.Error(err)
	}
}

// seesWatches waits until the root and each group have exactly one watch. More
// watches would occupy memory of the kernel.
func seesWatches(t *testing.T, w *Watcher) {
	t.Helper()
	queue, err := w.inotify.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		var text []byte
		err := queue.Control(func(fd uintptr) { text, err = os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd)) })
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "inotify wd:")
	}
	waitUntil(t, func() bool { return count() == len(w.Groups())+1 }, func() string {
		return fmt.Sprintf("%d watches for %d groups and the root", count(), len(w.Groups()))
	})
}

// TestOverflowIsMadeGoodByALook blocks the Watcher until its event queue
// overflows, so that the last events are lost. A scan must then find the
// changes.
func TestOverflowIsMadeGoodByALook(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	size, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || size > 1<<16 {
		t.Skipf("a queue of %s events takes too long to fill", text)
	}
	w, root := watchFixture(t)
	w.mu.Lock() // the watcher waits for it when it adds the next group
	makeDir(t, root, "first")
	names := []string{filepath.Join(root, "file"), filepath.Join(root, "other")}
	if err := os.WriteFile(names[0], nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range size/2 + eventsSize/unix.SizeofInotifyEvent { // each rename gives two events
		if err := unix.Rename(names[i%2], names[(i+1)%2]); err != nil {
			t.Fatal(err)
		}
	}
	removeDir(t, root, "a")
	makeDir(t, root, "a/new/b")
	makeDir(t, root, "z")
	w.mu.Unlock()
	seesTruth(t, w, root)
	seesWatches(t, w)
	makeDir(t, root, "a/new/b/c")
	seesTruth(t, w, root)
}

func TestLostRootIsSaidAndFoundAgain(t *testing.T) {
	tree := fixture(t, onlyV2+"-- v2/a/cpu.weight --\n")
	w, err := tree.watch(t.Context(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	root := tree.hierarchies[0].mount
	removeDir(t, root)
	waitUntil(t, func() bool { return w.DegradedReason() != nil && len(w.Groups()) == 0 }, func() string {
		return fmt.Sprintf("%v, %v", w.DegradedReason(), w.Groups())
	})
	makeDir(t, root, "b")
	waitUntil(t, func() bool { return w.DegradedReason() == nil && slices.Equal(w.Groups(), []string{"b"}) }, func() string {
		return fmt.Sprintf("%v, %v", w.DegradedReason(), w.Groups())
	})
}

func TestDirectTellsOwnProcessesFromThoseBelow(t *testing.T) {
	tree := fixture(t, onlyV2+"-- v2/a/cgroup.procs --\n-- v2/a/b/cgroup.procs --\n17\n-- v2/c/cpu.weight --\n")
	for path, want := range map[string]bool{"a": false, "a/b": true} {
		if got, err := tree.Direct(path); err != nil || got != want {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	for path, want := range map[string]string{"c": "read cgroup.procs in c: not supported here", "d": "no such cgroup"} {
		if _, err := tree.Direct(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func BenchmarkLook(b *testing.B) {
	root := b.TempDir()
	for i := range 1000 {
		if err := os.MkdirAll(fmt.Sprintf("%s/pod%d/c%d", root, i/10, i), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	tree := &Tree{hierarchies: []*hierarchy{{version: 2, mount: root}}}
	b.ReportAllocs()
	for b.Loop() {
		w, err := tree.Watch(b.Context())
		if err != nil || len(w.Groups()) != 1100 {
			b.Fatal(err)
		}
		w.Close()
	}
}
