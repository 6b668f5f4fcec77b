// Package reclaim carries out orders to reclaim memory, beside the loop: the kernel
// reclaims on the time of the caller, and may take seconds.
package reclaim

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// patience is the longest duration of an order. What the kernel has not reclaimed
	// then, it was not asked for in the next step either.
	patience = 2 * time.Second
	// parting is the time for which Run waits at its end for an order that goes on.
	parting = time.Second
	// mostAtOnce is what one write asks for. Between two writes, the order can end even on
	// a kernel that does not look for signals.
	mostAtOnce = unit.Bytes(8 << 20)
)

// A Writer asks the kernel to reclaim memory from a cgroup, and returns what it has
// reclaimed: see cgroup.Reclaim.
type Writer func(ctx context.Context, p node.CgroupPath, n unit.Bytes) (got unit.Bytes, err error)

// A Worker carries out orders one after the other, so that the reclaim takes the time of
// at most one CPU. It is safe for concurrent use.
type Worker struct {
	write Writer
	now   func() time.Time // the clock of snapshots
	wake  chan struct{}

	mu    sync.Mutex
	queue []node.ReclaimOrder
	known map[node.WorkloadID]node.Reclaim
}

// New returns a Worker that writes by write. now is the clock of the snapshots.
func New(write Writer, now func() time.Time) *Worker {
	return &Worker{write: write, now: now, wake: make(chan struct{}, 1), known: map[node.WorkloadID]node.Reclaim{}}
}

// Ask adds orders and returns at once. It leaves out an order for a workload that has
// one already.
func (w *Worker) Ask(orders []node.ReclaimOrder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range orders {
		r := w.known[o.Workload]
		if r.Running {
			continue
		}
		r.Running = true
		w.known[o.Workload], w.queue = r, append(w.queue, o)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Of returns what became of the orders for a workload.
func (w *Worker) Of(id node.WorkloadID) node.Reclaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[id]
}

// Keep forgets the workloads that are not in the list and have no order.
func (w *Worker) Keep(all []node.Workload) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.known) == 0 {
		return
	}
	here := make(map[node.WorkloadID]bool, len(all))
	for i := range all {
		here[all[i].ID] = true
	}
	for id, r := range w.known {
		if !here[id] && !r.Running {
			delete(w.known, id)
		}
	}
}

// Run carries out orders until ctx ends. If the kernel does not end a write even then,
// Run leaves the write behind.
func (w *Worker) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		for o, more := w.next(); more; o, more = w.next() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.carryOut(ctx, o)
			}()
			select {
			case <-done:
			case <-ctx.Done():
				select {
				case <-done:
				case <-time.After(parting):
				}
				return
			}
		}
	}
}

// next takes the first order of the queue.
func (w *Worker) next() (o node.ReclaimOrder, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return o, false
	}
	o, w.queue = w.queue[0], w.queue[1:]
	return o, true
}

// carryOut carries out one order by writes of at most mostAtOnce.
func (w *Worker) carryOut(ctx context.Context, o node.ReclaimOrder) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var got unit.Bytes
	var err error
	for left := o.Bytes; left > 0 && err == nil && ctx.Err() == nil; left -= mostAtOnce {
		var n unit.Bytes
		n, err = w.write(ctx, o.Cgroup, min(left, mostAtOnce))
		got += n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.known[o.Workload]
	r.Asked, r.Got, r.Running, r.Ended, r.Errno = r.Asked+o.Bytes, r.Got+got, false, w.now(), errnoOf(err)
	w.known[o.Workload] = r
}

// errnoOf returns the number of an error as node.Reclaim has it.
func errnoOf(err error) int {
	var errno syscall.Errno
	switch {
	case err == nil || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
		return 0
	case errors.As(err, &errno):
		return int(errno)
	}
	return -1
}
