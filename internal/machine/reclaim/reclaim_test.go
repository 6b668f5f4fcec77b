package reclaim

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const mib = unit.Bytes(1 << 20)

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// start runs a worker, and returns a function that ends it and waits.
func start(t *testing.T, write Writer) (w *Worker, end func()) {
	w = New(write, time.Now)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.Run(ctx) })
	end = func() { stop(); all.Wait() }
	t.Cleanup(end)
	return w, end
}

// TestAnOrderIsWrittenInParts checks what the kernel is asked for, and what the snapshot
// shows for each answer.
func TestAnOrderIsWrittenInParts(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		writes int
		errno  int
	}{
		"the kernel reclaims all":     {nil, 3, 0},
		"the kernel reclaims less":    {fmt.Errorf("write: %w", syscall.EAGAIN), 1, 0},
		"a signal ends the write":     {syscall.EINTR, 1, 0},
		"the cgroup is gone":          {fmt.Errorf("write: %w", syscall.ENODEV), 1, int(syscall.ENODEV)},
		"an error that has no number": {fmt.Errorf("parse memory.stat"), 1, -1},
	} {
		var asked []unit.Bytes
		w, end := start(t, func(_ context.Context, p node.CgroupPath, n unit.Bytes) (unit.Bytes, error) {
			if p != "be/job" {
				t.Errorf("%s: wrote in %s", name, p)
			}
			asked = append(asked, n)
			return n / 2, c.answer
		})
		w.Ask([]node.ReclaimOrder{{Workload: "job", Cgroup: "be/job", Bytes: 20 * mib}})
		await(t, name, func() bool { return !w.Of("job").Running })
		end()
		var sum unit.Bytes
		for _, n := range asked {
			sum += n
		}
		r := w.Of("job")
		if len(asked) != c.writes || r.Asked != 20*mib || r.Got != sum/2 || r.Errno != c.errno || r.Ended.IsZero() {
			t.Errorf("%s: writes %v, result %+v", name, asked, r)
		}
	}
}

// TestABlockedWriteEndsWithItsDeadline blocks a write until it is interrupted. A second
// order for the same workload is not taken, and that of another one follows.
func TestABlockedWriteEndsWithItsDeadline(t *testing.T) {
	calls := make(chan node.CgroupPath, 10)
	w, _ := start(t, func(ctx context.Context, p node.CgroupPath, _ unit.Bytes) (unit.Bytes, error) {
		calls <- p
		if p == "a" {
			<-ctx.Done()
			return mib, syscall.EINTR
		}
		return mib, nil
	})
	a, b := node.ReclaimOrder{Workload: "a", Cgroup: "a", Bytes: 64 * mib}, node.ReclaimOrder{Workload: "b", Cgroup: "b", Bytes: mib}
	w.Ask([]node.ReclaimOrder{a, b})
	<-calls
	w.Ask([]node.ReclaimOrder{a})
	if !w.Of("a").Running || !w.Of("b").Running {
		t.Error("orders that wait or go on do not count as running")
	}
	await(t, "both orders have ended", func() bool { return !w.Of("a").Running && !w.Of("b").Running })
	if r := w.Of("a"); r.Asked != 64*mib || r.Got != mib || r.Errno != 0 {
		t.Errorf("the blocked order: %+v", r)
	}
	if next := <-calls; next != "b" || len(calls) > 0 {
		t.Errorf("then %s was written, and %d more", next, len(calls))
	}
	w.Keep([]node.Workload{{ID: "b"}})
	if w.Of("a") != (node.Reclaim{}) || w.Of("b").Got != mib {
		t.Errorf("kept %+v and %+v", w.Of("a"), w.Of("b"))
	}
}

// TestTheEndOfTheAgentEndsAWrite stops a worker in a write that ends only when it is
// interrupted, and in one that never ends.
func TestTheEndOfTheAgentEndsAWrite(t *testing.T) {
	for name, heeds := range map[string]bool{"a write that can be interrupted": true, "a write that never ends": false} {
		never := make(chan struct{})
		t.Cleanup(func() { close(never) })
		begun, ended := make(chan struct{}), make(chan struct{})
		w, end := start(t, func(ctx context.Context, _ node.CgroupPath, _ unit.Bytes) (unit.Bytes, error) {
			close(begun)
			if heeds {
				<-ctx.Done()
				close(ended)
			} else {
				<-never
			}
			return 0, syscall.EINTR
		})
		w.Ask([]node.ReclaimOrder{{Workload: "job", Cgroup: "job", Bytes: mib}})
		<-begun
		end() // returns in both cases
		if heeds {
			<-ended
		} else if !w.Of("job").Running {
			t.Errorf("%s: it does not count as running", name)
		}
	}
}
