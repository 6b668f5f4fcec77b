package usage

import (
	"cmp"
	"sync"
	"time"

	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// slowWithin is the maximum age of slow counters. It is scarceWithin while
	// memory is scarce (docs/decisions/0024-counters-read-in-turn.md).
	slowWithin   = 10 * time.Second
	scarceWithin = 2 * time.Second
	// sleepsRounds is the maximum age of memory.stat (the most expensive file)
	// and of the I/O counters of a workload that sleeps: since they were read,
	// it has not run, and its charged memory has not changed. The unit is a
	// cycle of the slow counters: 6 cycles are one minute on a node with few
	// workloads. Such counters can be wrong, because the kernel may still have
	// moved pages to the inactive list, or written back data.
	sleepsRounds = 6
	// Memory is scarce when less than 1/scarceDivisor of it is available.
	scarceDivisor = 4
	// maxFirst is the maximum number of new workloads that one snapshot reads.
	maxFirst = 64
	// If a workload's charged memory has changed by more than 1/moveDivisor of the
	// node's memory since memory.stat was read, the next snapshot reads
	// memory.stat again. Otherwise a job that reads many files would seem to
	// grow until the next read. This limit is half of what eviction counts as
	// growth. maxMoved is the maximum number of such reads in one snapshot.
	moveDivisor = 400
	maxMoved    = 64
	// stallsWithin is the maximum age of the pressure of a workload with an objective for
	// its requests, because a window of requests lasts 15 s.
	stallsWithin = time.Second
)

// A slowCache holds the slow counters of a resident host.
type slowCache struct {
	mu    sync.Mutex
	known map[node.WorkloadID]slowCounters
	node  *slowCounters
	cycle reread.Cycle // selects workloads, and the node as the last item
}

// slowCounters holds the slow counters of a workload or of the node.
type slowCounters struct {
	cpu           time.Duration // CPU time when the counters were read; if it falls, the cgroup is another one
	charged       unit.Bytes    // memory charged when memory.stat was read
	at            time.Time     // when memory.stat was read
	cold          node.Maybe[unit.Bytes]
	refaults      node.Maybe[int64]
	read, written node.Maybe[unit.Bytes]
	pressure      node.Pressure
	pressed       time.Time // when pressure was read
	// Absent if each snapshot reads the throttling.
	throttled                 node.Maybe[time.Duration]
	periods, throttledPeriods node.Maybe[int64]
}

func newSlowCache() *slowCache { return &slowCache{known: map[node.WorkloadID]slowCounters{}} }

// FillSlow adds the counters that are expensive to read (slow counters) to a
// snapshot. On a resident host they may be ten seconds old, or two seconds
// while memory is scarce.
func (c *Counters) FillSlow(s *node.Snapshot, scarce bool) { c.slow.fill(s, c, scarce) }

// fill adds the slow counters to s. It reads those of workloads that are new or
// due, and has the others in the cache. Without a cache, it reads all.
func (r *slowCache) fill(s *node.Snapshot, c *Counters, scarce bool) {
	if r == nil {
		c.readNode().addToNode(&s.Usage)
		for i := range s.Workloads {
			w := &s.Workloads[i]
			have := c.readWorkload(*w, s.At)
			have.readMemory(c, *w, s.At)
			have.addTo(&w.Usage)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Slow counters are in three files for each workload.
	within := reread.Slower(slowWithin, 3*len(s.Workloads))
	if scarce { // memory eviction needs fresh values
		within = scarceWithin
	}
	if r.node == nil {
		known := c.readNode()
		r.node = &known
	}
	for i := range r.cycle.Due(s.At, len(s.Workloads)+1, within) {
		if i < len(s.Workloads) {
			w := s.Workloads[i]
			had, known := r.known[w.ID]
			if known && !scarce && had.isStillValid(w, s.At, sleepsRounds*within) {
				c.readPressure(&had, w, s.At)
				r.known[w.ID] = had
				continue
			}
			have := c.readWorkload(w, s.At)
			have.readMemory(c, w, s.At)
			r.known[w.ID] = have
		} else {
			*r.node = c.readNode()
		}
	}
	r.node.addToNode(&s.Usage)
	first, moved := maxFirst, maxMoved
	for i := range s.Workloads {
		w := &s.Workloads[i]
		have, had := r.known[w.ID]
		if !had || w.Usage.CPU.Or(have.cpu) < have.cpu {
			if first == 0 {
				delete(r.known, w.ID)
				continue
			}
			first--
			have = c.readWorkload(*w, s.At)
			have.readMemory(c, *w, s.At)
			r.known[w.ID] = have
		} else if moved > 0 && have.hasMoved(w.Usage.Memory, s.MemoryTotal) {
			moved--
			have.readMemory(c, *w, s.At)
			r.known[w.ID] = have
		}
		if settled := w.Usage.Reclaim.Ended.Add(node.ReclaimSettles); w.Usage.Reclaim.IsSettled(s.At) && (have.at.Before(settled) || have.pressed.Before(settled)) {
			c.readPressure(&have, *w, s.At)
			have.readMemory(c, *w, s.At)
			r.known[w.ID] = have
		}
		if w.Objective.Requests.Stated() && s.At.Sub(have.pressed) >= stallsWithin {
			c.readPressure(&have, *w, s.At)
			r.known[w.ID] = have
		}
		have.addTo(&w.Usage)
	}
	r.forget(s.Workloads)
}

// forget drops the counters of workloads that the snapshot does not contain.
func (r *slowCache) forget(workloads []node.Workload) {
	if len(r.known) <= len(workloads) {
		return
	}
	here := make(map[node.WorkloadID]bool, len(workloads))
	for _, w := range workloads {
		here[w.ID] = true
	}
	for id := range r.known {
		if !here[id] {
			delete(r.known, id)
		}
	}
}

// readWorkload reads all slow counters of a workload except those in memory.stat.
func (c *Counters) readWorkload(w node.Workload, at time.Time) slowCounters {
	p := string(w.Cgroup)
	known := c.readIO(p)
	known.cpu = w.Usage.CPU.Or(0)
	c.readPressure(&known, w, at)
	if c.throttlingIsSlow(&w) {
		var u node.Usage
		_ = c.readCPUUse(&u, p) // absent after an error
		known.throttled, known.periods, known.throttledPeriods = u.Throttled, u.Periods, u.ThrottledPeriods
	}
	return known
}

// readPressure reads the pressure (PSI) of a workload, even if the workload
// used no CPU, because pressure also grows while all threads wait.
func (c *Counters) readPressure(known *slowCounters, w node.Workload, at time.Time) {
	known.pressure, known.pressed = node.Pressure{}, at
	if c.tree.Version() == 1 {
		return // v1 has no pressure of cgroups
	}
	for _, r := range resources {
		p, err := c.tree.Pressure(string(w.Cgroup), r.name)
		*r.of(&known.pressure) = stallOf(p)
		c.faults.note(r.name, string(w.Cgroup), err)
	}
}

// readMemory reads the memory.stat of a workload.
func (x *slowCounters) readMemory(c *Counters, w node.Workload, at time.Time) {
	x.at, x.charged, x.cold, x.refaults = at, w.Usage.Memory.Or(0), node.Maybe[unit.Bytes]{}, node.Maybe[int64]{}
	m, err := c.tree.MemoryUse(string(w.Cgroup))
	if err == nil {
		x.cold = node.Some(m.InactiveFile)
	}
	if m.RefaultsErr == nil {
		x.refaults = node.Some(m.Refaults)
	}
	c.faults.note("memory.stat", string(w.Cgroup), cmp.Or(err, m.RefaultsErr))
}

// isStillValid reports whether memory.stat need not be read again: it was read
// within the given time, and the workload's CPU time and charged memory have
// not changed since.
func (x slowCounters) isStillValid(w node.Workload, at time.Time, within time.Duration) bool {
	cpu, counted := w.Usage.CPU.Value()
	charged, known := w.Usage.Memory.Value()
	return x.cold.Known() && at.Sub(x.at) < within && counted && known && cpu == x.cpu && charged == x.charged
}

// hasMoved reports whether a workload's charged memory has changed by more than
// 1/moveDivisor of the node's memory since memory.stat was read.
func (x slowCounters) hasMoved(charged, total node.Maybe[unit.Bytes]) bool {
	now, known := charged.Value()
	all, sized := total.Value()
	return known && sized && max(now-x.charged, x.charged-now) > all/moveDivisor
}

// readNode reads the slow counters of the node.
func (c *Counters) readNode() slowCounters {
	known := c.readIO("")
	v, err := c.fs.VMStat()
	var refaults int64
	if err == nil {
		refaults, err = v.Refaults()
	}
	if err == nil {
		known.refaults = node.Some(refaults)
	}
	c.faults.note("/proc/vmstat", "", err)
	return known
}

func (c *Counters) readIO(p string) slowCounters {
	var known slowCounters
	io, err := c.tree.IOUse(p)
	c.faults.note("io.stat", p, err)
	if err != nil && !io.NoRead && !io.NoWritten {
		return known // the file could not be read
	}
	if !io.NoRead {
		known.read = node.Some(io.Read)
	}
	if !io.NoWritten {
		known.written = node.Some(io.Written)
	}
	return known
}

func (x slowCounters) addToNode(u *node.Usage) {
	u.Refaults, u.Read, u.Written = x.refaults, x.read, x.written
}

func (x slowCounters) addTo(u *node.Usage) {
	x.addToNode(u)
	u.Pressure, u.SlowAt = x.pressure, x.pressed
	if x.throttled.Known() {
		u.Throttled, u.Periods, u.ThrottledPeriods = x.throttled, x.periods, x.throttledPeriods
	}
	memory, known := u.Memory.Value()
	if cold, counted := x.cold.Value(); known && counted {
		u.WorkingSet = node.Some(max(memory-cold, 0))
	}
}
