// This file finds out why requests took too long although the threads hardly waited for
// a CPU: they stalled on memory or on a disk, the same work needed more CPU time, or they
// slept. What is not measured is not claimed: then the cause is NotWaiting. None of these
// causes costs BE any CPU, because less CPU for BE would not help.

package slo

import (
	"maps"
	"math/bits"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// What requests need is usual after enoughKept windows that kept the objective. It is
	// the mean of the last keptWindows of them, about 17 hours.
	enoughKept, keptWindows = 4, 4096
	// Requests need more CPU time if it exceeds the usual time by 1/workDivisor, and by
	// spreads times its usual distance from the mean.
	workDivisor, spreads = 7, 4
	// Other work runs more if its CPU time exceeds the usual one by 1/othersDivisor, and by
	// leastOthers.
	othersDivisor               = 4
	leastOthers   unit.MilliCPU = 100
	// A workload is at its memory limit if all but 1/limitDivisor of it is used.
	limitDivisor = 16
)

// Spent says how a workload spent the time of a window in which its requests took too
// long, as far as that is measured.
type Spent struct {
	Window time.Duration `json:"window_ns,omitempty"`
	// Memory and IO are the times in which at least one of its threads stalled on memory,
	// and on a disk.
	Memory node.Maybe[time.Duration] `json:"memory,omitzero"`
	IO     node.Maybe[time.Duration] `json:"io,omitzero"`
	// Work is the CPU time of a request on average. UsualWork is the mean of it in windows
	// with about as many requests in a second that kept the objective.
	Work      node.Maybe[time.Duration] `json:"work,omitzero"`
	UsualWork node.Maybe[time.Duration] `json:"usual_work,omitzero"`
	// Took is the BE work that took memory lately.
	Took Taken `json:"took,omitzero"`
}

// A Cost is what requests need while the objective is kept.
type Cost struct {
	Windows int64 `json:"windows,omitempty"`
	// Work is the CPU time of a request on average, and Spread the mean distance of a
	// window from it. Others is the CPU that all other work of the node uses meanwhile.
	Work   time.Duration `json:"work_ns,omitempty"`
	Spread time.Duration `json:"spread_ns,omitempty"`
	Others unit.MilliCPU `json:"others_mcpu,omitempty"`
}

// with adds a window that kept the objective.
func (c Cost) with(work time.Duration, others unit.MilliCPU) Cost {
	if c.Windows == 0 {
		return Cost{Windows: 1, Work: work, Others: others}
	}
	c.Windows = min(c.Windows+1, keptWindows)
	c.Spread += (max(work-c.Work, c.Work-work) - c.Spread) / time.Duration(c.Windows)
	c.Work += (work - c.Work) / time.Duration(c.Windows)
	c.Others += (others - c.Others) / unit.MilliCPU(c.Windows)
	return c
}

// A load is a window of requests, of which some were longer than their target.
type load struct {
	total, over int64
	target      time.Duration
	// requests is the length of the window by the times at which the requests were
	// counted, and window by those at which the other counters were read.
	requests, window time.Duration
}

// octave returns the load in powers of two of requests in a second.
func (q load) octave() int {
	return bits.Len64(uint64(float64(q.total) / max(q.requests.Seconds(), 1)))
}

// work returns the CPU time of a request on average. The two windows may differ in length.
func (q load) work(r Reading) (time.Duration, bool) {
	cpu, known := r.CPU.Value()
	if !known || q.total <= 0 || q.window <= 0 || q.requests <= 0 {
		return 0, false
	}
	return time.Duration(float64(cpu) / float64(q.total) * float64(q.requests) / float64(q.window)), true
}

// others returns the CPU that all other work of the node used.
func (q load) others(r Reading) (unit.MilliCPU, bool) {
	all, known := r.NodeCPU.Value()
	own, also := r.CPU.Value()
	if !known || !also || q.window <= 0 {
		return 0, false
	}
	return unit.MilliCPU(1000 * float64(max(all-own, 0)) / float64(q.window)), true
}

// learn adds a window that kept the objective to the costs by octave.
func (q load) learn(all map[int]Cost, r Reading) map[int]Cost {
	work, known := q.work(r)
	others, also := q.others(r)
	if !known || !also {
		return all
	}
	next := maps.Clone(all)
	if next == nil {
		next = map[int]Cost{}
	}
	next[q.octave()] = next[q.octave()].with(work, others)
	return next
}

// explains reports whether a time of all threads together is a good part of what the slow
// requests took: each took longer than the target.
func (q load) explains(t float64) bool {
	return t > 0 && t >= float64(q.over)*float64(q.target/delayDivisor)
}

// stalls reports whether a time in which at least one thread stalled explains the slow
// requests. If many requests are slow at once, one stall delays them all. Then the part
// of the time with a stall must be a good part of the part of the requests that are slow.
func (q load) stalls(t time.Duration) bool {
	part := float64(q.window) * float64(q.over) / float64(max(q.total, 1)) / delayDivisor
	return q.explains(float64(t)) || t > 0 && float64(t) >= part
}

// stalled reports whether a stall explains the slow requests, and whether that is known.
// The node stalls for no less time than each of its workloads.
func (q load) stalled(own, ofNode node.Maybe[time.Duration]) (explains, known bool) {
	if t, read := own.Value(); read {
		return q.stalls(t), true
	}
	t, read := ofNode.Value()
	return false, read && !q.stalls(t)
}

// needsMore reports whether the requests are slow because the same work needs more CPU
// time than usual while other work of the node runs more than usual.
func (q load) needsMore(r Reading, usual Cost) bool {
	work, known := q.work(r)
	others, also := q.others(r)
	return known && also && usual.Windows >= enoughKept &&
		work > usual.Work+max(usual.Work/workDivisor, spreads*usual.Spread) &&
		others > usual.Others+max(usual.Others/othersDivisor, leastOthers) &&
		q.explains(float64(work-usual.Work)*float64(q.total))
}

// slept reports whether the threads neither ran, nor waited for a CPU, nor were throttled
// for long enough to explain the slow requests. It is false if one of these is not known.
func (q load) slept(r Reading, usual Cost) bool {
	cpu, known := r.CPU.Value()
	waited, counted := r.Delay.Value()
	throttled, read := r.Throttled.Value()
	steal, stolen := r.Steal.Value()
	all, used := r.NodeCPU.Value()
	if !known || !counted || !read || !stolen || !used {
		return false
	}
	byHost := float64(cpu) * float64(steal) / float64(max(all, 1))
	if q.explains(float64(waited)) || q.explains(float64(throttled)) || q.explains(byHost) {
		return false
	}
	if !q.explains(float64(cpu)) { // even if all of it was for the slow requests
		return true
	}
	work, known := q.work(r)
	more := max(work-usual.Work, 0) + spreads*usual.Spread
	return known && usual.Windows >= enoughKept && !q.explains(float64(more)*float64(q.total))
}

// spend says how the time of a window with slow requests was spent, and why they were slow
// although the threads hardly waited for a CPU. r is the growth of the counters.
func (q load) spend(r Reading, w *node.Workload, usual Cost, took Taken) (Spent, Cause) {
	s := Spent{Window: q.window, Memory: r.Memory, IO: r.IO, Took: took}
	if work, known := q.work(r); known {
		s.Work = node.Some(work)
		if usual.Windows >= enoughKept {
			s.UsualWork = node.Some(usual.Work)
		}
	}
	memory, memoryKnown := q.stalled(r.Memory, r.NodeMemory)
	disk, diskKnown := q.stalled(r.IO, r.NodeIO)
	switch {
	case memory && took.By != "" && !isAtLimit(w):
		return s, BEMemory
	case memory:
		return s, Memory
	case q.needsMore(r, usual):
		return s, Contention
	case disk:
		return s, Storage
	case memoryKnown && diskKnown && q.slept(r, usual):
		return s, Downstream
	}
	return s, NotWaiting
}

// isAtLimit reports whether a workload has used up its own memory limit.
func isAtLimit(w *node.Workload) bool {
	limit, limited := w.MemoryLimit.Value()
	used, known := w.Usage.Memory.Value()
	return limited && known && used >= limit-limit/limitDivisor
}
