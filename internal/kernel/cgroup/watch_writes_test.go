package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writesTo returns how many values w gives for a group until it has given none for a while.
func writesTo(t *testing.T, w *WriteWatch, path string) (n int) {
	t.Helper()
	for {
		select {
		case got, open := <-w.Wrote():
			if !open || got != path {
				t.Fatalf("a write to %q, want %q", got, path)
			}
			n++
		case <-time.After(200 * time.Millisecond):
			return n
		}
	}
}

// awaitWrite waits for one write to a group.
func awaitWrite(t *testing.T, w *WriteWatch, path string) {
	t.Helper()
	select {
	case got := <-w.Wrote():
		if got != path {
			t.Errorf("a write to %q, want %q", got, path)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no write to %q is seen in 20 s", path)
	}
	writesTo(t, w, path)
}

// TestWritesToTheWatchedGroupsAreSeen writes files of groups that are watched and of such
// that are not, also after a group was removed and made again.
func TestWritesToTheWatchedGroupsAreSeen(t *testing.T) {
	tree := fixture(t, onlyV2+"-- v2/a/cpu.max --\nmax 100000\n-- v2/b/cpu.max --\nmax 100000\n")
	w, err := tree.WatchWrites(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write := func(group string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(tree.hierarchies[0].mount, group, "cpu.max"), os.O_WRONLY|os.O_CREATE, 0o644)
		if err == nil {
			_, err = f.WriteString("5000 10000\n")
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	only := func(groups ...string) {
		t.Helper()
		if err := w.Only(groups); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	only("a", "none-such")
	write("a")
	awaitWrite(t, w, "a")
	write("b")
	if n := writesTo(t, w, "a"); n > 0 {
		t.Error("a write is seen that is none")
	}
	only("b")
	write("a")
	write("b")
	awaitWrite(t, w, "b")
	removeDir(t, tree.hierarchies[0].mount, "b")
	makeDir(t, tree.hierarchies[0].mount, "b")
	only("b")
	write("b")
	awaitWrite(t, w, "b")
}

func TestAWriteWatchEndsWithItsContext(t *testing.T) {
	tree := fixture(t, onlyV2)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := tree.WatchWrites(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, open := <-w.Wrote(); open {
		t.Error("a write is seen that is none")
	}
	if err := w.Only([]string{"a"}); err != nil {
		t.Error(err)
	}
}

// TestKernelTellsOfWritesToFilesOfGroups writes the CPU limit of a real group. The kernel
// reports the write of a process, as it does for a file of a disk.
func TestKernelTellsOfWritesToFilesOfGroups(t *testing.T) {
	tree, path := kernelGroup(t)
	w, err := tree.WatchWrites(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Only([]string{path}); err != nil {
		t.Fatal(err)
	}
	limit := CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}
	begun := time.Now()
	if err := tree.WriteCPUMax(path, limit); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-w.Wrote():
		t.Logf("told of a write to %s after %v", got, time.Since(begun))
		if got != path {
			t.Errorf("a write to %q, want %q", got, path)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the kernel tells of no write in 20 s")
	}
}
