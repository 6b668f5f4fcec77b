package lease

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestARestoreNeedNotWaitForTheWatchdog(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		w.removed = make(chan struct{}, 1)
		do(t, take(t, w.dir, agent, w.clock).Renew([]Bound{quota}))
		w.watch()
		time.Sleep(10 * time.Millisecond)
		begun := time.Now()
		if err := os.Remove(filepath.Join(w.dir, leaseFile)); err != nil {
			t.Fatal(err)
		}
		w.removed <- struct{}{}
		if err := <-w.ended; err != nil || time.Since(begun) != 0 {
			t.Errorf("the watchdog ended %v after the lease was removed, with %v", time.Since(begun), err)
		}
	})
}

func TestRemovalsAreReported(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, leaseFile)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	removed := WatchRemovals(t.Context(), dir)
	if err := os.Rename(name, name+"2"); err != nil { // as a renewal does
		t.Fatal(err)
	}
	select {
	case <-removed:
		t.Error("a rename counts as a removal")
	case <-time.After(10 * time.Millisecond):
	}
	if err := os.Remove(name + "2"); err != nil {
		t.Fatal(err)
	}
	<-removed
}
