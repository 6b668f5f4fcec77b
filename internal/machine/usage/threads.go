package usage

import (
	"sync"
	"time"

	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// countEvery is the least time between two counts of the threads of one
	// workload.
	countEvery = 2 * time.Second
	// threadsCounted bounds the threads whose state is read of one workload: of
	// more threads a part is read, and the number is scaled.
	threadsCounted = 64
)

// A threadCounter counts the threads, and the runnable threads, of workloads
// that their quota throttles in most periods: only there the number says
// something, and only such a workload pays for the count. One snapshot reads
// the state of at most about threadsCounted threads, and at least those of one
// workload. The zero threadCounter has counted nothing.
type threadCounter struct {
	mu   sync.Mutex
	work map[node.WorkloadID]*throttledWork
	next int // of the workloads left for the next snapshot
}

// throttledWork is a workload whose counters of quota periods were read.
type throttledWork struct {
	periods, throttled int64
	mostly             bool // throttled in most periods between the last two readings
	counted            time.Time
	threads, runnable  node.Maybe[int]
}

// FillThreads adds to a snapshot the numbers of threads of the workloads that are
// throttled in most periods, if the host is resident.
func (c *Counters) FillThreads(s *node.Snapshot) {
	if c.slow != nil {
		c.threads.fill(s, c)
	}
}

func (t *threadCounter) fill(s *node.Snapshot, c *Counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var here []int // workloads of s
	var work map[node.WorkloadID]*throttledWork
	for i := range s.Workloads {
		w := &s.Workloads[i]
		periods := w.Usage.Periods.Or(0)
		if periods == 0 {
			continue // no quota, the usual case
		}
		x := t.work[w.ID]
		if x == nil {
			x = &throttledWork{periods: periods, throttled: w.Usage.ThrottledPeriods.Or(0)}
		}
		if work == nil {
			work = map[node.WorkloadID]*throttledWork{}
		}
		work[w.ID] = x
		if x.read(periods, w.Usage.ThrottledPeriods.Or(0)); x.mostly {
			here = append(here, i)
		}
	}
	t.work = work
	budget := threadsCounted
	for range here {
		if budget <= 0 {
			break
		}
		t.next = (t.next + 1) % len(here)
		w := &s.Workloads[here[t.next]]
		if x := work[w.ID]; x.counted.IsZero() || s.At.Sub(x.counted) >= countEvery {
			budget -= x.count(c, w.Cgroup, s.At)
		}
	}
	for _, i := range here {
		x := work[s.Workloads[i].ID]
		s.Workloads[i].Usage.Threads, s.Workloads[i].Usage.Runnable = x.threads, x.runnable
	}
}

// read takes a reading of the counters. A workload that is not throttled in most
// periods has no number of threads.
func (x *throttledWork) read(periods, throttled int64) {
	ran, held := periods-x.periods, throttled-x.throttled
	if ran == 0 && held == 0 {
		return // the counters are those of the reading before
	}
	x.periods, x.throttled = periods, throttled
	if x.mostly = ran > 0 && 2*held > ran; !x.mostly {
		x.threads, x.runnable = node.Maybe[int]{}, node.Maybe[int]{}
	}
}

// count counts the threads, and returns the number of files that it read. A
// throttled thread is runnable: its state is R.
func (x *throttledWork) count(c *Counters, group node.CgroupPath, at time.Time) int {
	x.counted = at
	var all []thread
	total, files := 0, 0
	subtree.EachProcess(c.tree, group, func(pid int) {
		tids, _ := c.fs.Threads(pid) // empty: the process has ended
		files++
		total += len(tids)
		for _, tid := range tids {
			all = append(all, thread{pid, tid})
		}
	})
	every := max((total+threadsCounted-1)/threadsCounted, 1)
	running, looked := 0, 0
	for i := 0; i < len(all); i += every {
		stat, err := c.fs.ThreadStat(all[i].pid, all[i].tid)
		files++
		if err != nil {
			continue // it has ended
		}
		looked++
		if stat.State == 'R' {
			running++
		}
	}
	if looked == 0 {
		x.threads, x.runnable = node.Maybe[int]{}, node.Maybe[int]{}
		return max(files, 1)
	}
	x.threads, x.runnable = node.Some(total), node.Some((running*total+looked/2)/looked)
	return files
}
