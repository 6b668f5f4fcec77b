// Package meter counts what the processes in a cgroup do during an experiment:
// CPU time and throttling, waits for a CPU, and the kernel's performance
// counters.
package meter

import (
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/perf"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// A Meter counts what happens in one cgroup. It is not safe for concurrent use.
type Meter struct {
	FS    proc.FS
	Tree  *cgroup.Tree
	Group node.CgroupPath

	threads Threads
	count   counters // of the process that Follow named
}

// A Reading holds the counters at one time.
type Reading struct {
	At    time.Time
	CPU   cgroup.CPUStat
	Wait  time.Duration // time that the threads of the cgroup waited for a CPU
	perf  map[string]float64
	valid map[string]bool
}

// Follow starts to count the events of a process and of all its descendants.
// The counting begins when the process next executes a program. Earlier counts
// are dropped.
func (m *Meter) Follow(pid int) {
	m.Close()
	m.count = count(pid)
}

// Read reads the counters. It must be called several times a second, because
// the kernel forgets the waits of a thread that has ended.
func (m *Meter) Read() (r Reading, err error) {
	pids, err := m.Tree.Procs(string(m.Group))
	if err != nil {
		return r, err
	}
	threads, err := m.threads.Read(m.FS, pids)
	if err != nil {
		return r, err
	}
	if r.CPU, err = m.Tree.CPUStat(string(m.Group)); err != nil {
		return r, err
	}
	m.count.read(&r)
	r.At, r.Wait = time.Now(), threads.Delay
	return r, nil
}

// Close ends the counting of events.
func (m *Meter) Close() {
	m.count.close()
	m.count = nil
}

// events lists the events that a Meter counts for a process and its
// descendants.
var events = []perf.Event{perf.Migrations, perf.Switches, perf.Cycles, perf.Instructions, perf.CacheMisses}

// counters count what one process and its descendants do.
type counters []*perf.Counter // in the order of events; nil: this machine cannot count it

// count starts the counters of a process. It omits events that this machine
// cannot count, or that the user may not count.
func count(pid int) counters {
	all := make(counters, len(events))
	for i, e := range events {
		if c, err := perf.Count(pid, e); err == nil {
			all[i] = c
		}
	}
	return all
}

func (c counters) read(into *Reading) {
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

// CountBetween returns how often an event happened between two readings. The
// result is absent if this machine cannot count the event.
func CountBetween(a, b Reading, e perf.Event) node.Maybe[float64] {
	if !b.valid[e.Name] {
		return node.Maybe[float64]{}
	}
	return node.Some(b.perf[e.Name] - a.perf[e.Name])
}
