package reclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const mib = unit.Bytes(1 << 20)

// A fakeKernel takes each write as it is told, and shows what it has reclaimed only later.
type fakeKernel struct {
	answer  func(ctx context.Context, p node.CgroupPath, n unit.Bytes) (got unit.Bytes, err error)
	readErr error // of each read after the first

	mu     sync.Mutex
	reads  int
	writes []write
}

// A write is one that the kernel has answered.
type write struct {
	p      node.CgroupPath
	n, got unit.Bytes
	at     time.Time
}

func (k *fakeKernel) Write(ctx context.Context, p node.CgroupPath, n unit.Bytes) error {
	got, err := k.answer(ctx, p, n)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes = append(k.writes, write{p, n, got, time.Now()})
	return err
}

func (k *fakeKernel) Stolen(p node.CgroupPath) (all unit.Bytes, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reads++; k.reads > 1 && k.readErr != nil {
		return 0, k.readErr
	}
	for _, w := range k.writes {
		if w.p == p && time.Since(w.at) >= cgroup.StolenLags {
			all += w.got
		}
	}
	return all, nil
}

// half answers that half of each write was reclaimed.
func half(_ context.Context, _ node.CgroupPath, n unit.Bytes) (unit.Bytes, error) { return n / 2, nil }

// blocks answers when the write is interrupted.
func blocks(ctx context.Context, _ node.CgroupPath, _ unit.Bytes) (unit.Bytes, error) {
	<-ctx.Done()
	return mib, syscall.EINTR
}

// all lets every workload run its orders.
func all(node.WorkloadID) bool { return true }

func order(id string, n unit.Bytes) node.ReclaimOrder {
	return node.ReclaimOrder{Workload: node.WorkloadID(id), Cgroup: node.CgroupPath("be/" + id), Bytes: n}
}

// start runs a worker, and returns a function that ends it and waits.
func start(t *testing.T, k *fakeKernel) (w *Worker, end func()) {
	w = New(Kernel{k.Write, k.Stolen}, time.Now)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.Run(ctx) })
	end = func() { stop(); all.Wait() }
	t.Cleanup(end)
	return w, end
}

// TestAnOrderIsWrittenInParts checks what the kernel is asked for, and what the snapshot
// shows for each answer. The counter of the kernel lags.
func TestAnOrderIsWrittenInParts(t *testing.T) {
	for name, c := range map[string]struct {
		answer, read error
		writes       int
		asked, got   unit.Bytes
		errno        int
	}{
		"the kernel reclaims all":   {nil, nil, 3, 20 * mib, 10 * mib, 0},
		"the kernel reclaims less":  {fmt.Errorf("write: %w", syscall.EAGAIN), nil, 1, 8 * mib, 4 * mib, 0},
		"a signal ends the write":   {syscall.EINTR, nil, 1, 8 * mib, 4 * mib, 0},
		"the cgroup is gone":        {fmt.Errorf("write: %w", syscall.ENODEV), nil, 1, 0, 0, int(syscall.ENODEV)},
		"the result has no number":  {nil, fmt.Errorf("parse memory.stat"), 3, 20 * mib, 0, -1},
		"the read is interrupted":   {nil, syscall.EINTR, 3, 20 * mib, 0, int(syscall.EINTR)},
		"neither write nor read go": {syscall.EAGAIN, syscall.EAGAIN, 1, 8 * mib, 0, int(syscall.EAGAIN)},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &fakeKernel{readErr: c.read}
			k.answer = func(_ context.Context, _ node.CgroupPath, n unit.Bytes) (unit.Bytes, error) { return n / 2, c.answer }
			w, _ := start(t, k)
			begun := time.Now()
			w.Ask([]node.ReclaimOrder{order("job", 20*mib)}, all)
			synctest.Wait()
			if r := w.Of("job"); r.Running != (c.asked > 0) || !r.Ended.Equal(begun) || r.Got != 0 {
				t.Errorf("%s: at its end %+v", name, r)
			}
			time.Sleep(node.ReclaimSettles - time.Second)
			synctest.Wait()
			r := w.Of("job")
			if len(k.writes) != c.writes || r.Asked != c.asked || r.Got != c.got || r.Errno != c.errno || r.Running || !r.Ended.Equal(begun) {
				t.Errorf("%s: writes %v, result %+v", name, k.writes, r)
			}
		})
	}
}

// TestAnOrderWithoutAFirstReadIsNotWritten has a memory.stat that cannot be read.
func TestAnOrderWithoutAFirstReadIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{answer: half, readErr: syscall.EINTR, reads: 1}
		w, _ := start(t, k)
		w.Ask([]node.ReclaimOrder{order("job", mib)}, all)
		synctest.Wait()
		if r := w.Of("job"); len(k.writes) > 0 || r.Running || r.Errno != int(syscall.EINTR) || r.Asked != 0 || r.Ended.IsZero() {
			t.Errorf("writes %v, result %+v", k.writes, r)
		}
	})
}

// TestABlockedWriteEndsWithItsPatience blocks a write until it is interrupted. A second
// order for the same workload is not taken, and that of another one follows.
func TestABlockedWriteEndsWithItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{}
		k.answer = func(ctx context.Context, p node.CgroupPath, n unit.Bytes) (unit.Bytes, error) {
			if p == "be/a" {
				return blocks(ctx, p, n)
			}
			return half(ctx, p, n)
		}
		w, _ := start(t, k)
		begun := time.Now()
		w.Ask([]node.ReclaimOrder{order("a", 64*mib)}, all)
		synctest.Wait()
		w.Ask([]node.ReclaimOrder{order("a", 64*mib), order("b", mib)}, all)
		if !w.Of("a").Running || !w.Of("b").Running {
			t.Error("orders that wait or go on do not count as running")
		}
		time.Sleep(patience + readAfter)
		synctest.Wait()
		if r := w.Of("a"); r.Running || r.Asked != 8*mib || r.Got != mib || r.Errno != 0 || !r.Ended.Equal(begun.Add(patience)) {
			t.Errorf("the blocked order: %+v", r)
		}
		if r := w.Of("b"); r.Running || r.Asked != mib || r.Got != mib/2 || len(k.writes) != 2 {
			t.Errorf("the other order: %+v, writes %v", r, k.writes)
		}
		w.Keep([]node.Workload{{ID: "b"}})
		if w.Of("a") != (node.Reclaim{}) || w.Of("b").Got != mib/2 {
			t.Errorf("kept %+v and %+v", w.Of("a"), w.Of("b"))
		}
	})
}

// TestATickReplacesWhatHasNotBegun has 320 orders of which each takes 2 s. Those of the
// first tick must not be carried out after the second, and none long after the last tick.
func TestATickReplacesWhatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{answer: blocks}
		w, _ := start(t, k)
		var orders []node.ReclaimOrder
		for i := range 320 {
			orders = append(orders, order(fmt.Sprint("job-", i), mib))
		}
		w.Ask(orders, all)
		synctest.Wait()
		time.Sleep(time.Second)
		if !w.Of("job-1").Running {
			t.Error("an order that waits does not count as running")
		}
		w.Ask(orders[200:], all)
		if r := w.Of("job-1"); r.Running || !r.Ended.IsZero() || !w.Of("job-0").Running || !w.Of("job-200").Running {
			t.Errorf("after the second tick: %+v", r)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var done []node.CgroupPath
		for _, x := range k.writes {
			done = append(done, x.p)
		}
		if want := []node.CgroupPath{"be/job-0", "be/job-200"}; !slices.Equal(done, want) {
			t.Errorf("carried out %v, want %v", done, want)
		}
		if r := w.Of("job-250"); r.Running || !r.Ended.IsZero() {
			t.Errorf("an order that was dropped: %+v", r)
		}
	})
}

// TestATickEndsAnOrder lets a workload become one that may not run its order: it is gone,
// is no batch work any more, is frozen, or the reclaim was switched off.
func TestATickEndsAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{answer: blocks}
		w, _ := start(t, k)
		begun := time.Now()
		w.Ask([]node.ReclaimOrder{order("a", 64*mib), order("b", mib)}, all)
		synctest.Wait()
		time.Sleep(time.Second)
		w.Ask(nil, func(id node.WorkloadID) bool { return id != "a" })
		synctest.Wait()
		if r := w.Of("a"); !r.Ended.Equal(begun.Add(time.Second)) || r.Asked != 8*mib {
			t.Errorf("the order that went on: %+v", r)
		}
		if r := w.Of("b"); r.Running || len(k.writes) != 1 {
			t.Errorf("the order that waited: %+v, writes %v", r, k.writes)
		}
	})
}

// TestAnIdleTickWakesNoOne has ticks without orders.
func TestAnIdleTickWakesNoOne(t *testing.T) {
	w := New(Kernel{}, time.Now)
	w.Ask(nil, all)
	if len(w.wake) > 0 {
		t.Error("a tick without orders wakes the worker")
	}
}

// TestTheEndOfTheAgentEndsAWrite stops a worker in a write that ends only when it is
// interrupted, and in one that never ends.
func TestTheEndOfTheAgentEndsAWrite(t *testing.T) {
	for name, heeds := range map[string]bool{"a write that can be interrupted": true, "a write that never ends": false} {
		never := make(chan struct{})
		t.Cleanup(func() { close(never) })
		begun, ended := make(chan struct{}), make(chan struct{})
		w, end := start(t, &fakeKernel{answer: func(ctx context.Context, _ node.CgroupPath, _ unit.Bytes) (unit.Bytes, error) {
			close(begun)
			if heeds {
				<-ctx.Done()
				close(ended)
			} else {
				<-never
			}
			return 0, syscall.EINTR
		}})
		w.Ask([]node.ReclaimOrder{order("job", mib)}, all)
		<-begun
		end() // returns in both cases
		if heeds {
			<-ended
		} else if !w.Of("job").Running {
			t.Errorf("%s: it does not count as running", name)
		}
	}
}
