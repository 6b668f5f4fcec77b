package sweep

import (
	"errors"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/perf"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// A reading holds the counters of one slot at one time.
type reading struct {
	at    time.Time
	cpu   cgroup.CPUStat
	wait  time.Duration // of its threads for a CPU
	perf  map[string]float64
	valid map[string]bool
}

// events are counted for each process of a slot and its descendants.
var events = []perf.Event{perf.Migrations, perf.Switches, perf.Cycles, perf.Instructions, perf.CacheMisses}

// counters counts what one process and its descendants do.
type counters []*perf.Counter // in the order of events; nil: this machine cannot count it

// count begins to count. An event that the machine or the user's privileges do
// not allow is left out.
func count(pid int) counters {
	all := make(counters, len(events))
	for i, e := range events {
		if c, err := perf.Count(pid, e); err == nil {
			all[i] = c
		}
	}
	return all
}

func (c counters) read(into *reading) {
	into.perf, into.valid = map[string]float64{}, map[string]bool{}
	for i, one := range c {
		if one == nil {
			continue
		}
		if n, err := one.Read(); err == nil {
			into.perf[events[i].Name], into.valid[events[i].Name] = n, true
		}
	}
}

func (c counters) close() {
	for _, one := range c {
		if one != nil {
			_ = one.Close()
		}
	}
}

// between returns the count of an event between two readings.
func between(a, b reading, e perf.Event) node.Maybe[float64] {
	if !b.valid[e.Name] {
		return node.Maybe[float64]{}
	}
	return node.Some(b.perf[e.Name] - a.perf[e.Name])
}

// waits adds up the time that the threads of a cgroup wait for a CPU. The kernel
// forgets the counter of a thread that has ended, so update is called often.
type waits struct {
	total time.Duration
	last  map[int]time.Duration
}

func (w *waits) update(fs proc.FS, t *cgroup.Tree, group node.CgroupPath) error {
	pids, err := t.Procs(string(group))
	if err != nil {
		return err
	}
	now := map[int]time.Duration{}
	for _, pid := range pids {
		threads, err := fs.Threads(pid)
		if errors.Is(err, proc.ErrGone) {
			continue
		}
		if err != nil {
			return err
		}
		for _, tid := range threads {
			s, err := fs.SchedStat(pid, tid)
			if errors.Is(err, proc.ErrGone) {
				continue
			}
			if err != nil {
				return err
			}
			now[tid] = s.Delay
			w.total += max(s.Delay-w.last[tid], 0)
		}
	}
	w.last = now
	return nil
}
