package usage

import (
	"sync"
	"time"

	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// countEvery is the least time between two counts of the threads of the
	// same workload.
	countEvery = 2 * time.Second
	// sleepsAfter is a time. If a workload has had no new period and has used
	// no CPU for this time, it is not throttled any more. The CPU use must be
	// considered, because the counters of periods may be old.
	sleepsAfter = 3 * time.Second
	// processesListed is the maximum number of processes of one workload whose
	// threads are listed. threadsCounted is the maximum number of threads whose
	// state is read. If there are more, each count reads another part of them,
	// and multiplies the result.
	processesListed = 64
	threadsCounted  = 64
)

// A threadCounter counts the threads and the runnable threads of workloads that
// are throttled in most periods. The numbers are useful only for these
// workloads, so no others are counted. When one snapshot has read about
// threadsCounted files of /proc, it begins with no further workload. The
// process lists of cgroups do not count. The zero threadCounter has counted
// nothing.
type threadCounter struct {
	mu   sync.Mutex
	work map[node.WorkloadID]*throttledWork
	next int // of the workloads left for the next snapshot
}

// throttledWork is a workload, with the last readings of its counters of quota
// periods.
type throttledWork struct {
	periods, throttled int64
	used               time.Duration
	ran                time.Time // time of the last reading in which a counter had grown
	mostly             bool      // throttled in most periods between the last two readings
	counted            time.Time
	counts             int // number of counts so far, which selects the part to read next
	threads, runnable  node.Maybe[int]
}

// FillThreads adds numbers of threads to a snapshot, for each workload that is
// throttled in most periods. It does so only on a resident host.
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
		if w.Usage.Periods.Or(0) == 0 {
			continue // there is no quota, which is the usual case
		}
		x := t.work[w.ID]
		if x == nil {
			x = &throttledWork{}
			x.take(w.Usage, s.At)
		}
		if work == nil {
			work = map[node.WorkloadID]*throttledWork{}
		}
		work[w.ID] = x
		if x.read(w.Usage, s.At); x.mostly {
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
		// If a workload does not run now, the states of its threads do not show
		// how much CPU it wants.
		if x := work[w.ID]; x.ran.Equal(s.At) && (x.counted.IsZero() || s.At.Sub(x.counted) >= countEvery) {
			budget -= x.count(c, w.Cgroup, s.At)
		}
	}
	for _, i := range here {
		x := work[s.Workloads[i].ID]
		s.Workloads[i].Usage.Threads, s.Workloads[i].Usage.Runnable = x.threads, x.runnable
	}
}

// read stores a reading of the counters. If the workload is not throttled in
// most periods, or sleeps, its number of threads is forgotten.
func (x *throttledWork) read(u node.Usage, at time.Time) {
	had := *x
	x.take(u, at)
	ran, held := x.periods-had.periods, x.throttled-had.throttled
	switch {
	case ran != 0 || held != 0:
		x.mostly = ran > 0 && 2*held > ran
	case x.used != had.used:
		return // the counters of the periods have not changed since the reading before
	case at.Sub(had.ran) >= sleepsAfter:
		x.mostly, x.ran = false, had.ran
	default:
		x.ran = had.ran
	}
	if !x.mostly {
		x.threads, x.runnable = node.Maybe[int]{}, node.Maybe[int]{}
	}
}

// take stores the counters of a workload that runs.
func (x *throttledWork) take(u node.Usage, at time.Time) {
	x.periods, x.throttled, x.used, x.ran = u.Periods.Or(0), u.ThrottledPeriods.Or(0), u.CPU.Or(0), at
}

// count counts the threads. It returns how many files of /proc it read. The
// state of a throttled thread is R, so the thread counts as runnable.
func (x *throttledWork) count(c *Counters, group node.CgroupPath, at time.Time) (files int) {
	x.counted = at
	x.counts++
	var pids []int
	subtree.EachProcess(c.tree, group, func(pid int) { pids = append(pids, pid) })
	var all []thread
	listed := 0
	for i, every := x.part(len(pids), processesListed); i < len(pids); i += every {
		tids, _ := c.fs.Threads(pids[i]) // empty: the process has ended
		listed++
		for _, tid := range tids {
			all = append(all, thread{pids[i], tid})
		}
	}
	running, looked := 0, 0
	for i, every := x.part(len(all), threadsCounted); i < len(all); i += every {
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
	files = max(files+listed, 1)
	if looked == 0 {
		x.threads, x.runnable = node.Maybe[int]{}, node.Maybe[int]{}
		return files
	}
	total := (len(all)*len(pids) + listed/2) / listed
	x.threads, x.runnable = node.Some(total), node.Some((running*total+looked/2)/looked)
	return files
}

// part says which of n things to read if the number of reads is limited. It
// returns the index of the first one, and the step to the next.
func (x *throttledWork) part(n, most int) (first, every int) {
	every = max((n+most-1)/most, 1)
	return x.counts % every, every
}
