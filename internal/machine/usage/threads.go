package usage

import (
	"sync"
	"time"

	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// countEvery is the minimum time between two counts of one workload's
	// threads.
	countEvery = 2 * time.Second
	// If a workload has used no CPU for the time sleepsAfter, and has had no
	// new quota period, it is not throttled any more. Both must be checked,
	// because the counters of periods may be old.
	sleepsAfter = 3 * time.Second
	// If a workload has many processes, only processesListed of them list their
	// threads. If it has many threads, only threadsCounted of them show their
	// state. Each count then reads another part of them and extrapolates from it.
	processesListed = 64
	threadsCounted  = 64
)

// A threadCounter counts the threads, and the runnable threads, of workloads that
// their quota throttles in most periods. The policies do not need the numbers for
// other workloads. A snapshot that has read about threadsCounted files of /proc
// starts no further count. The zero threadCounter is ready for use.
type threadCounter struct {
	mu   sync.Mutex
	work map[node.WorkloadID]*throttledWork
	next int // index of the last counted workload
}

// throttledWork is the state of one workload with a quota: the last readings of
// its counters, and the last numbers of its threads.
type throttledWork struct {
	periods, throttled int64
	used               time.Duration
	ran                time.Time // time of the last reading in which a counter had grown
	mostly             bool      // the quota throttled it in most periods between the last two readings
	counted            time.Time
	counts             int // number of counts so far; selects the part to read next
	threads, runnable  node.Maybe[int]
}

// FillThreads adds numbers of threads to a snapshot, for workloads that are
// throttled in most periods. It adds none outside of tenond, where c.slow is nil.
func (c *Counters) FillThreads(s *node.Snapshot) {
	if c.slow != nil {
		c.threads.fill(s, c)
	}
}

func (t *threadCounter) fill(s *node.Snapshot, c *Counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var here []int // indices of workloads that are throttled in most periods
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
		// Skip workloads that do not run now: their threads would not show how much CPU
		// they need.
		if x := work[w.ID]; x.ran.Equal(s.At) && (x.counted.IsZero() || s.At.Sub(x.counted) >= countEvery) {
			budget -= x.count(c, w.Cgroup, s.At)
		}
	}
	for _, i := range here {
		x := work[s.Workloads[i].ID]
		s.Workloads[i].Usage.Threads, s.Workloads[i].Usage.Runnable = x.threads, x.runnable
	}
}

// read stores new counters. If the workload sleeps or is not throttled in most
// periods, read forgets the numbers of threads.
func (x *throttledWork) read(u node.Usage, at time.Time) {
	had := *x
	x.take(u, at)
	ran, held := x.periods-had.periods, x.throttled-had.throttled
	switch {
	case ran != 0 || held != 0:
		x.mostly = ran > 0 && 2*held > ran
	case x.used != had.used:
		return // the workload runs, but the counters of periods are still the old ones
	case at.Sub(had.ran) >= sleepsAfter:
		x.mostly, x.ran = false, had.ran
	default:
		x.ran = had.ran
	}
	if !x.mostly {
		x.threads, x.runnable = node.Maybe[int]{}, node.Maybe[int]{}
	}
}

// take stores the counters, and that the workload ran at the time at.
func (x *throttledWork) take(u node.Usage, at time.Time) {
	x.periods, x.throttled, x.used, x.ran = u.Periods.Or(0), u.ThrottledPeriods.Or(0), u.CPU.Or(0), at
}

// count counts the threads, and returns how many files of /proc it read.
// Throttled threads have the state R, so they count as runnable.
func (x *throttledWork) count(c *Counters, group node.CgroupPath, at time.Time) (files int) {
	x.counted = at
	x.counts++
	var pids []int
	subtree.EachProcess(c.tree, group, func(pid int) { pids = append(pids, pid) })
	var all []thread
	listed := 0
	for i, every := x.part(len(pids), processesListed); i < len(pids); i += every {
		tids, _ := c.fs.Threads(pids[i]) //nolint:errcheck // empty: the process has ended
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

// part chooses the items that one count reads: some of n items, up to a maximum (most).
// It returns the first, and the distance to the next. The next count has another first.
func (x *throttledWork) part(n, most int) (first, every int) {
	every = max((n+most-1)/most, 1)
	return x.counts % every, every
}
