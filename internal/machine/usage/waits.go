package usage

import (
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// threadsAtOnce is the maximum number of threads that one snapshot reads.
	// threadsKnown is the maximum length of the list of a workload's threads.
	threadsAtOnce = 128
	threadsKnown  = 512
	// listWithin is the maximum age of the list of a workload's threads.
	listWithin = 10 * time.Second
)

// A waitSampler samples how long threads wait for a CPU, where BPF does not
// count every wait. For workloads with an objective, it reads
// /proc/PID/task/TID/schedstat of a limited number of threads in each snapshot.
// The mean wait per time slice is an estimate for the workload. The sums are
// too small, because not all threads are sampled. The zero waitSampler is ready
// for use.
type waitSampler struct {
	mu   sync.Mutex
	work map[node.WorkloadID]*sample
	next int // index of the last sampled workload
}

// A sample is the list of one workload's threads, with the sum of the waits
// that were read.
type sample struct {
	threads []thread
	listed  time.Time
	next    int // index in threads of the last thread that was read
	seen    map[thread]proc.SchedStat
	waited  time.Duration
	slices  int64
}

type thread struct{ pid, tid int }

// FillWaits adds sampled waits to a snapshot, for workloads that have an objective
// and that BPF does not count. It adds none outside of tenond, where c.slow is nil.
func (c *Counters) FillWaits(s *node.Snapshot) {
	if c.slow != nil {
		c.waits.fill(s, c)
	}
}

// fill does the work of FillWaits, and reads at most threadsAtOnce threads. On a
// kernel that does not count these waits, it adds nothing: a sum of 0 would say
// that there are none.
func (t *waitSampler) fill(s *node.Snapshot, c *Counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var here []int // indices of the workloads to sample
	for i, w := range s.Workloads {
		if w.Class.Sensitive() && w.Objective.RunQueueDelay.Known() && !w.Usage.Delay.Sum.Known() {
			here = append(here, i)
		}
	}
	if len(here) == 0 || s.Capabilities[node.FeatureSchedStat].Verdict == node.No {
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
		work[w.ID].read(c, w.Cgroup, s.At, share)
	}
	for _, i := range here {
		x := work[s.Workloads[i].ID]
		s.Workloads[i].Usage.Delay = node.RunQueueDelay{Sum: node.Some(x.waited), Timeslices: node.Some(x.slices)}
	}
}

// read reads the next threads of the workload: as many as threads says. The
// next call continues after these.
func (x *sample) read(c *Counters, group node.CgroupPath, at time.Time, threads int) {
	if x.listed.IsZero() || at.Sub(x.listed) >= listWithin {
		x.list(c, group, at)
	}
	for range min(threads, len(x.threads)) {
		x.next = (x.next + 1) % len(x.threads)
		id := x.threads[x.next]
		now, err := c.fs.SchedStat(id.pid, id.tid)
		if err != nil {
			delete(x.seen, id) // the thread has ended, and its last waits are lost
			continue
		}
		before, had := x.seen[id]
		if had && now.Delay >= before.Delay && now.Slices >= before.Slices {
			x.waited += now.Delay - before.Delay
			x.slices += now.Slices - before.Slices
		}
		x.seen[id] = now
	}
}

// list lists the workload's threads again, at most threadsKnown.
func (x *sample) list(c *Counters, group node.CgroupPath, at time.Time) {
	x.threads, x.listed = x.threads[:0], at
	subtree.EachProcess(c.tree, group, func(pid int) {
		if len(x.threads) >= threadsKnown {
			return
		}
		tids, _ := c.fs.Threads(pid) //nolint:errcheck // empty: the process has ended
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
