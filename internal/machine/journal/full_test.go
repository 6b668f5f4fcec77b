package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// tmpfs mounts a small file system. It returns the directory, and a function
// that fills the file system.
func tmpfs(t *testing.T, size string) (dir string, fill func() (free func())) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tenon-test", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		if os.Getenv("TENON_TEST_STRICT") != "" && os.Geteuid() == 0 {
			t.Fatalf("mount a small tmpfs: %v", err)
		}
		t.Skipf("this test fills a tmpfs: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func() func() {
		f, err := os.CreateTemp(dir, "filler")
		do(t, err)
		defer f.Close()
		for block := make([]byte, 4096); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		return func() { do(t, os.Remove(f.Name())) }
	}
}

// TestAFullFileSystemStopsOnlyWhatIsNew fills the tmpfs. Tenon must still be
// able to change knobs that have an entry in the journal. Knobs without an
// entry must not change.
func TestAFullFileSystemStopsOnlyWhatIsNew(t *testing.T) {
	dir, fill := tmpfs(t, "512k")
	j := open(t, dir, me)
	do(t, j.Intend(quota, 2, node.Limit(2000), node.Limit(1000)), j.RecordValue(quota, node.Limit(1000)))
	free := fill()
	for i := range 3000 {
		v := node.Limit(unit.MilliCPU(100 + i))
		if err := errors.Join(j.Intend(quota, 2, node.Limit(2000), v), j.RecordValue(quota, v)); err != nil {
			t.Fatalf("write %d on a full file system: %v", i, err)
		}
	}
	err := j.Intend(weight, 5, odd, idle)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a first touch on a full file system: %v", err)
	}
	do(t, j.Intend(quota, 2, node.Limit(2000), node.Limit(500)), j.RecordValue(quota, node.Limit(500)))
	want := map[node.Knob]journal.Touch{quota: {Inode: 2, Before: node.Limit(2000), Written: node.Limit(500), By: me}}
	for name, got := range map[string]journal.State{"writer": state(t, j), "new reader": state(t, open(t, dir, me))} {
		if d := cmp.Diff(want, got.Touches); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}

	free()
	do(t, j.Intend(weight, 5, odd, idle), j.RecordValue(weight, idle), j.Forget(quota))
	info, err := os.Stat(j.Path() + ".next")
	if err != nil || info.Sys().(*syscall.Stat_t).Blocks == 0 {
		t.Errorf("the reserve is not created again when there is space: %v, %v", info, err)
	}
	if len(state(t, j).Touches) != 1 {
		t.Errorf("%v", state(t, j).Touches)
	}
}

// TestAFullFileSystemAndAHolderThatStandsStill fills the file system while
// another process holds the lock. Entries about known knobs must still be
// possible. But they must not use the file to which the other process may be
// writing.
func TestAFullFileSystemAndAHolderThatStandsStill(t *testing.T) {
	dir, fill := tmpfs(t, "512k")
	j := open(t, dir, me)
	do(t, j.Intend(quota, 2, node.Limit(2000), node.Limit(1000)), j.RecordValue(quota, node.Limit(1000)))
	text, err := os.ReadFile(j.Path())
	do(t, err)
	fill()
	f, err := os.OpenFile(j.Path(), os.O_WRONLY|os.O_APPEND, 0)
	do(t, err)
	for err == nil { // fills its last page
		_, err = f.Write(text)
	}
	do(t, f.Close())
	hold(t, dir)
	do(t, j.Intend(quota, 2, node.Limit(2000), node.Limit(500)))
	want := map[node.Knob]journal.Touch{quota: {Inode: 2, Before: node.Limit(2000), Written: node.Limit(1000), Pending: node.Limit(500), By: me}}
	if d := cmp.Diff(want, state(t, open(t, dir, lab)).Touches); d != "" {
		t.Error(d)
	}
	if left, _ := filepath.Glob(j.Path() + ".next.*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
