package host

import (
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// threadsAtOnce is how many threads a snapshot asks how long they waited,
	// and threadsKnown how many of one workload are ever asked.
	threadsAtOnce = 128
	threadsKnown  = 512
	// listWithin is how old the list of a workload's threads may be.
	listWithin = 10 * time.Second
)

// turns counts how long threads waited for a CPU where nothing counts every
// wait: /proc/PID/task/TID/schedstat of the workloads that have an objective,
// of so many threads for each snapshot. What it counts is a sample: the ratio
// of its waits to its turns is that of the workload, the sum is less. The zero
// turns has counted nothing.
type turns struct {
	mu   sync.Mutex
	work map[node.WorkloadID]*sample
	next int // of the workloads that have to wait for the next snapshot
}

// A sample is the threads of a workload, and what those that were asked have
// waited since they were asked first.
type sample struct {
	threads []thread
	listed  time.Time
	next    int // of threads
	seen    map[thread]proc.SchedStat
	waited  time.Duration
	turns   int64
}

type thread struct{ pid, tid int }

// fill adds to s the waits of workloads that have an objective and whose waits
// nobody else has counted.
func (t *turns) fill(s *node.Snapshot, h *Host) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var here []int // workloads of s
	for i, w := range s.Workloads {
		if w.Class.Sensitive() && w.Objective.RunQueueDelay.Known() && !w.Usage.Delay.Sum.Known() {
			here = append(here, i)
		}
	}
	if len(here) == 0 {
		t.work = nil
		return
	}
	work := make(map[node.WorkloadID]*sample, len(here))
	for _, i := range here {
		id := s.Workloads[i].ID
		if work[id] = t.work[id]; work[id] == nil {
			work[id] = &sample{seen: map[thread]proc.SchedStat{}}
		}
	}
	t.work = work
	share := max(threadsAtOnce/len(here), 1)
	for range min(len(here), threadsAtOnce) {
		t.next = (t.next + 1) % len(here)
		w := s.Workloads[here[t.next]]
		work[w.ID].ask(h, w.Cgroup, s.At, share)
	}
	for _, i := range here {
		x := work[s.Workloads[i].ID]
		s.Workloads[i].Usage.Delay = node.RunQueueDelay{Sum: node.Some(x.waited), Turns: node.Some(x.turns)}
	}
}

// ask asks so many of the threads, each after all others.
func (x *sample) ask(h *Host, group node.CgroupPath, at time.Time, threads int) {
	if x.listed.IsZero() || at.Sub(x.listed) >= listWithin {
		x.list(h, group, at)
	}
	for range min(threads, len(x.threads)) {
		x.next = (x.next + 1) % len(x.threads)
		id := x.threads[x.next]
		now, err := h.fs.SchedStat(id.pid, id.tid)
		if err != nil {
			delete(x.seen, id) // it has ended, and with it what it waited last
			continue
		}
		before, had := x.seen[id]
		if had && now.Delay >= before.Delay && now.Slices >= before.Slices {
			x.waited += now.Delay - before.Delay
			x.turns += now.Slices - before.Slices
		}
		x.seen[id] = now
	}
}

// list looks which threads the workload has.
func (x *sample) list(h *Host, group node.CgroupPath, at time.Time) {
	x.threads, x.listed = x.threads[:0], at
	h.everyoneIn(group, func(pid int) {
		if len(x.threads) >= threadsKnown {
			return
		}
		tids, _ := h.fs.Threads(pid) // it has ended: none
		for _, tid := range tids[:min(len(tids), threadsKnown-len(x.threads))] {
			x.threads = append(x.threads, thread{pid, tid})
		}
	})
	here := make(map[thread]bool, len(x.threads))
	for _, id := range x.threads {
		here[id] = true
	}
	for id := range x.seen {
		if !here[id] {
			delete(x.seen, id)
		}
	}
}
