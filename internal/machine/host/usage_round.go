package host

import (
	"sync"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// roundWithin is the largest age of slow counters, and scarceWithin the
	// same while memory is scarce
	// (docs/decisions/0024-counters-read-in-turn.md).
	roundWithin  = 10 * time.Second
	scarceWithin = 2 * time.Second
	// scarcePart: memory is scarce when less than this part of it is available.
	scarcePart = 4
	// mostFirst bounds the new workloads that one snapshot reads.
	mostFirst = 64
	// hasMoved: if the charged memory of a workload has changed by 1/hasMoved of
	// the node's memory since its page cache was read, it is read again before
	// its turn; mostMoved bounds these reads for one snapshot. Otherwise a job
	// that reads many files would seem to grow until its turn. The limit is
	// half of what counts as growth.
	hasMoved  = 400
	mostMoved = 64
)

// A round is the cache of the slow counters of a resident host.
type round struct {
	mu    sync.Mutex
	known map[node.WorkloadID]seldom
	node  *seldom
	lap   lap // of the workloads, then the node
}

// seldom is the slow counters of a workload or of the node.
type seldom struct {
	cpu           time.Duration // CPU time at that read: a smaller value means another cgroup
	charged       unit.Bytes    // memory charged at that read
	cold          node.Maybe[unit.Bytes]
	refaults      node.Maybe[int64]
	read, written node.Maybe[unit.Bytes]
	pressure      node.Pressure
	// The effect of a quota; absent if it is read fresh.
	throttled                 node.Maybe[time.Duration]
	periods, throttledPeriods node.Maybe[int64]
}

func newRound() *round { return &round{known: map[node.WorkloadID]seldom{}} }

// fill adds the slow counters to s, and reads those of new workloads and those
// due for a read. Without a round it reads all.
func (r *round) fill(s *node.Snapshot, h *Host, scarce bool) {
	if r == nil {
		h.nodeSeldom().addToNode(&s.Usage)
		for i := range s.Workloads {
			h.workloadSeldom(s.Workloads[i]).addTo(&s.Workloads[i].Usage)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	within := roundWithin
	if scarce {
		within = scarceWithin
	}
	if r.node == nil {
		known := h.nodeSeldom()
		r.node = &known
	}
	for i := range r.lap.due(s.At, len(s.Workloads)+1, within) {
		if i < len(s.Workloads) {
			r.known[s.Workloads[i].ID] = h.workloadSeldom(s.Workloads[i])
		} else {
			*r.node = h.nodeSeldom()
		}
	}
	r.node.addToNode(&s.Usage)
	first, moved := mostFirst, mostMoved
	for i := range s.Workloads {
		w := &s.Workloads[i]
		have, had := r.known[w.ID]
		if !had || w.Usage.CPU.Or(have.cpu) < have.cpu {
			if first == 0 {
				delete(r.known, w.ID)
				continue
			}
			first--
			have = h.workloadSeldom(*w)
			r.known[w.ID] = have
		} else if moved > 0 && have.moved(w.Usage.Memory, s.MemoryTotal) {
			moved--
			have.readMemory(h, *w)
			r.known[w.ID] = have
		}
		have.addTo(&w.Usage)
	}
	r.forget(s.Workloads)
}

// forget drops the counters of workloads that are gone.
func (r *round) forget(workloads []node.Workload) {
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

// workloadSeldom reads the slow counters of a workload.
func (h *Host) workloadSeldom(w node.Workload) seldom {
	p := string(w.Cgroup)
	known := h.ioSeldom(p)
	known.cpu = w.Usage.CPU.Or(0)
	known.readMemory(h, w)
	if h.tree.Version() != 1 { // v1 has no pressure of cgroups
		for _, r := range resources {
			if p, err := h.tree.Pressure(p, r.name); err == nil {
				*r.of(&known.pressure) = stallOf(p)
			}
		}
	}
	if h.throttlingIsSeldom(w) {
		var u node.Usage
		_ = h.readCPUUse(&u, p) // absent after an error
		known.throttled, known.periods, known.throttledPeriods = u.Throttled, u.Periods, u.ThrottledPeriods
	}
	return known
}

// readMemory reads memory.stat of a workload.
func (x *seldom) readMemory(h *Host, w node.Workload) {
	x.charged, x.cold, x.refaults = w.Usage.Memory.Or(0), node.Maybe[unit.Bytes]{}, node.Maybe[int64]{}
	if m, err := h.tree.MemoryUse(string(w.Cgroup)); err == nil {
		x.cold, x.refaults = node.Some(m.InactiveFile), node.Some(m.Refaults)
	}
}

// moved reports whether the charged memory of a workload has changed much since
// its page cache was read.
func (x seldom) moved(charged, total node.Maybe[unit.Bytes]) bool {
	now, known := charged.Value()
	all, sized := total.Value()
	return known && sized && max(now-x.charged, x.charged-now) > all/hasMoved
}

// nodeSeldom reads the slow counters of the node.
func (h *Host) nodeSeldom() seldom {
	known := h.ioSeldom("")
	if v, err := h.fs.VMStat(); err == nil {
		known.refaults = node.Some(v.Refaults())
	}
	return known
}

func (h *Host) ioSeldom(p string) seldom {
	var known seldom
	if io, err := h.tree.IOUse(p); err == nil {
		known.read, known.written = node.Some(io.Read), node.Some(io.Written)
	}
	return known
}

func (x seldom) addToNode(u *node.Usage) {
	u.Refaults, u.Read, u.Written = x.refaults, x.read, x.written
}

func (x seldom) addTo(u *node.Usage) {
	x.addToNode(u)
	u.Pressure = x.pressure
	if x.throttled.Known() {
		u.Throttled, u.Periods, u.ThrottledPeriods = x.throttled, x.periods, x.throttledPeriods
	}
	memory, known := u.Memory.Value()
	if cold, counted := x.cold.Value(); known && counted {
		u.WorkingSet = node.Some(max(memory-cold, 0))
	}
}
