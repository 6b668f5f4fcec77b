package statedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWaitersAreServedInOrder lets one waiter after another enter the queue of the
// kernel, and then releases the lock.
func TestWaitersAreServedInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := (&Queue{Path: path}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const waiters = 6
	served := make(chan int, waiters)
	for i := range waiters {
		go func() {
			f, err := (&Queue{Path: path}).Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			served <- i
			_ = f.Close()
		}()
		awaitQueue(t, held, i+1)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	for want := range waiters {
		if got := <-served; got != want {
			t.Fatalf("waiter %d was served before waiter %d", got, want)
		}
	}
}

// TestAnAbandonedWaitReleasesTheLock gives up a wait, and checks that the wait,
// which goes on in the kernel, does not keep the lock from others. A second wait
// of the same queue does not add to the queue of the kernel.
func TestAnAbandonedWaitReleasesTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := (&Queue{Path: path}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reason := errors.New("enough")
	q := &Queue{Path: path}
	for range 3 {
		ctx, stop := context.WithCancelCause(t.Context())
		go func() {
			awaitQueue(t, held, 1)
			stop(reason)
		}()
		if _, err := q.Lock(ctx); !errors.Is(err, reason) {
			t.Fatalf("Lock: %v, want the cause of the context", err)
		}
	}
	if n := queued(t, held); n != 1 {
		t.Errorf("%d waits in the kernel, want 1", n)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*Queue{q, {Path: path}} {
		f, err := q.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
}

// TestALockOfARemovedFileIsTakenAgain removes the lock file while another process
// waits for it. That process must lock the new file, as others do.
func TestALockOfARemovedFileIsTakenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := (&Queue{Path: path}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *os.File, 1)
	go func() {
		f, err := (&Queue{Path: path}).Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- f
	}()
	awaitQueue(t, held, 1)
	if err := errors.Join(os.Remove(path), held.Close()); err != nil {
		t.Fatal(err)
	}
	f := <-got
	defer f.Close()
	if !IsCurrent(f) {
		t.Error("the lock is on the removed file")
	}
}

func TestASignatureNamesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if pid := Holder(path); pid != 0 {
		t.Errorf("holder of a missing file: %d", pid)
	}
	f, err := (&Queue{Path: path}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if pid := Holder(path); pid != 0 {
		t.Errorf("holder of an empty file: %d", pid)
	}
	Sign(f)
	if pid := Holder(path); pid != os.Getpid() {
		t.Errorf("holder %d, want %d", pid, os.Getpid())
	}
}

// awaitQueue waits until n waiters for a lock are in the kernel.
func awaitQueue(t *testing.T, lock *os.File, n int) {
	t.Helper()
	for range 3000 {
		if queued(t, lock) >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d waiters for the lock, want %d", queued(t, lock), n)
}

// queued returns how many waiters for a lock /proc/locks lists (proc_locks(5)).
func queued(t *testing.T, lock *os.File) (n int) {
	t.Helper()
	info, err := lock.Stat()
	if err != nil {
		t.Error(err)
		return 0
	}
	inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Error(err)
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
			n++
		}
	}
	return n
}
