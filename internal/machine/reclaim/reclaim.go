// Package reclaim carries out orders to reclaim memory, beside the loop: the kernel
// reclaims on the time of the caller, and may take seconds.
package reclaim

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// patience is the longest duration of an order. What the kernel has not reclaimed
	// then, it was not asked for in the next step either.
	patience = 2 * time.Second
	// startsWithin is the time in which an order must begin. What the decision knew of the
	// workload is too old afterwards.
	startsWithin = 3 * time.Second
	// readAfter is the time after the answer of the kernel at which what it has reclaimed
	// is read. The counter lags by cgroup.StolenLags.
	readAfter = cgroup.StolenLags + 500*time.Millisecond
	// parting is the time for which Run waits at its end for an order that goes on.
	parting = time.Second
	// mostAtOnce is what one write asks for. Between two writes, the order can end even on
	// a kernel that does not look for signals.
	mostAtOnce = unit.Bytes(8 << 20)
)

// A Kernel reclaims memory from cgroups.
type Kernel struct {
	// Write asks for n bytes: see cgroup.Reclaim.
	Write func(ctx context.Context, p node.CgroupPath, n unit.Bytes) error
	// Stolen reads what was reclaimed so far: see cgroup.Stolen.
	Stolen func(p node.CgroupPath) (unit.Bytes, error)
}

// A Worker carries out orders one after the other, so that the reclaim takes the time of
// at most one CPU. It is safe for concurrent use.
type Worker struct {
	kernel Kernel
	now    func() time.Time // the clock of snapshots
	wake   chan struct{}

	mu      sync.Mutex
	queue   []node.ReclaimOrder
	until   time.Time // the orders of the queue must begin before
	current node.WorkloadID
	cancel  context.CancelFunc // ends the order of current; nil if none goes on
	known   map[node.WorkloadID]node.Reclaim
}

// New returns a Worker. now is the clock of the snapshots.
func New(k Kernel, now func() time.Time) *Worker {
	return &Worker{kernel: k, now: now, wake: make(chan struct{}, 1), known: map[node.WorkloadID]node.Reclaim{}}
}

// Ask takes the orders of a tick, and returns at once. They replace those that have not
// begun, because these follow from an older snapshot. It leaves out an order for a
// workload that has one which goes on or whose result is not known yet. The order that
// goes on ends if mayRun denies it to its workload.
func (w *Worker) Ask(orders []node.ReclaimOrder, mayRun func(node.WorkloadID) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil && !mayRun(w.current) {
		w.cancel()
	}
	w.drop()
	if len(orders) == 0 {
		return
	}
	for _, o := range orders {
		r := w.known[o.Workload]
		if r.Running {
			continue
		}
		r.Running = true
		w.known[o.Workload], w.queue = r, append(w.queue, o)
	}
	w.until = time.Now().Add(startsWithin)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// drop forgets the orders that have not begun.
func (w *Worker) drop() {
	for _, o := range w.queue {
		r := w.known[o.Workload]
		r.Running = false
		w.known[o.Workload] = r
	}
	w.queue = nil
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
		for {
			o, of, more := w.next(ctx)
			if !more {
				break
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.carryOut(of, o)
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

// next takes the first order of the queue. Its context ends with ctx, with its patience, or
// when a tick ends the order.
func (w *Worker) next(ctx context.Context) (o node.ReclaimOrder, of context.Context, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !time.Now().Before(w.until) {
		w.drop()
	}
	if len(w.queue) == 0 {
		return o, nil, false
	}
	o, w.queue = w.queue[0], w.queue[1:]
	of, w.cancel = context.WithTimeout(ctx, patience)
	w.current = o.Workload
	return o, of, true
}

// carryOut carries out one order by writes of at most mostAtOnce. What the kernel has
// reclaimed is read later (settle), while other orders are carried out.
func (w *Worker) carryOut(ctx context.Context, o node.ReclaimOrder) {
	before, err := w.kernel.Stolen(o.Cgroup)
	readErr := err
	var asked unit.Bytes
	for asked < o.Bytes && err == nil && ctx.Err() == nil {
		n := min(o.Bytes-asked, mostAtOnce)
		if err = w.kernel.Write(ctx, o.Cgroup, n); isAnswer(err) {
			asked += n
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
	w.cancel = nil
	r := w.known[o.Workload]
	if r.Running = readErr == nil && asked > 0; r.Running {
		time.AfterFunc(readAfter, func() { w.settle(o, before) })
	}
	if failed := readErr != nil || !isAnswer(err); failed || asked > 0 { // else a tick ended it before its first write
		r.Asked, r.Ended, r.Errno = r.Asked+asked, w.now(), 0
		if failed {
			r.Errno = errnoOf(err)
		}
	}
	w.known[o.Workload] = r
}

// settle reads what the kernel has reclaimed for an order. If that cannot be read, the
// order has failed.
func (w *Worker) settle(o node.ReclaimOrder, before unit.Bytes) {
	after, err := w.kernel.Stolen(o.Cgroup)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.known[o.Workload]
	if r.Running = false; err != nil {
		r.Errno = errnoOf(err)
	} else {
		r.Got += max(after-before, 0)
	}
	w.known[o.Workload] = r
}

// isAnswer reports whether an error of a write says that the kernel was asked.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
}

// errnoOf returns the number of an error as node.Reclaim has it.
func errnoOf(err error) int {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return int(errno)
	}
	return -1
}
