package slo

import (
	"math"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// margin is a factor on the estimate of the waiting time that throttling
	// explains, because the estimate may be too low. See
	// docs/decisions/0017-closed-loop-on-run-queue-delay.md.
	margin = 2
	// A quota that throttles a workload in at least 1/heldDivisor of its periods
	// counts before BE as the cause of a miss.
	heldDivisor = 20
)

// A Reading holds the values of those counters of a workload that say for what
// its threads waited.
type Reading struct {
	// Waited is the time for which the threads waited, whatever ran meanwhile.
	// The others are the parts in which BE ran, the workload itself, other services,
	// and the system.
	Waited     time.Duration `json:"waited_ns,omitempty"`
	ByBE       time.Duration `json:"by_be_ns,omitempty"`
	BySelf     time.Duration `json:"by_self_ns,omitempty"`
	ByServices time.Duration `json:"by_services_ns,omitempty"`
	BySystem   time.Duration `json:"by_system_ns,omitempty"`
	// NodeCPU is the CPU time that the whole node has used, and Steal the time for
	// which its CPUs had work while the hypervisor ran something else.
	NodeCPU node.Maybe[time.Duration] `json:"node_cpu,omitzero"`
	Steal   node.Maybe[time.Duration] `json:"steal,omitzero"`
	// Delay is the waiting time of the threads, if the kernel counts every wait.
	Delay node.Maybe[time.Duration] `json:"delay,omitzero"`
	// Memory and IO are the times in which at least one thread stalled on memory, and on a
	// disk. NodeMemory and NodeIO are those of any thread of the node. They are absent for
	// a workload without an objective for its requests.
	Memory     node.Maybe[time.Duration] `json:"memory,omitzero"`
	IO         node.Maybe[time.Duration] `json:"io,omitzero"`
	NodeMemory node.Maybe[time.Duration] `json:"node_memory,omitzero"`
	NodeIO     node.Maybe[time.Duration] `json:"node_io,omitzero"`
	// The other counters are those of node.Usage.
	CPU              node.Maybe[time.Duration] `json:"cpu,omitzero"`
	Throttled        node.Maybe[time.Duration] `json:"throttled,omitzero"`
	Periods          node.Maybe[int64]         `json:"periods,omitzero"`
	ThrottledPeriods node.Maybe[int64]         `json:"throttled_periods,omitzero"`
}

// since returns how much the counters have grown since an earlier reading. It
// returns false if the readings of waits do not fit together.
func (r Reading) since(before Reading) (Reading, bool) {
	grown := Reading{
		Waited: r.Waited - before.Waited, ByBE: r.ByBE - before.ByBE, BySelf: r.BySelf - before.BySelf,
		ByServices: r.ByServices - before.ByServices, BySystem: r.BySystem - before.BySystem,
		NodeCPU: growth(before.NodeCPU, r.NodeCPU), Steal: growth(before.Steal, r.Steal), Delay: growth(before.Delay, r.Delay),
		Memory: growth(before.Memory, r.Memory), IO: growth(before.IO, r.IO),
		NodeMemory: growth(before.NodeMemory, r.NodeMemory), NodeIO: growth(before.NodeIO, r.NodeIO),
		CPU: growth(before.CPU, r.CPU), Throttled: growth(before.Throttled, r.Throttled),
		Periods: growth(before.Periods, r.Periods), ThrottledPeriods: growth(before.ThrottledPeriods, r.ThrottledPeriods),
	}
	return grown, min(grown.Waited, grown.ByBE, grown.BySelf, grown.ByServices, grown.BySystem) >= 0
}

// growth returns the growth of a counter. It is absent if either value is, or if
// the counter was reset.
func growth[T int64 | time.Duration](before, now node.Maybe[T]) node.Maybe[T] {
	then, had := before.Value()
	if value, has := now.Value(); had && has && value >= then {
		return node.Some(value - then)
	}
	return node.Maybe[T]{}
}

// isHeldByQuota reports whether the workload's own quota throttled it so often
// that BE is not to blame for a miss. r is the growth of the counters in a window.
//
// While a service begins to use its quota up, and while it ends, the number of its
// waiting threads changes, and no estimate separates throttled waits from waits
// for BE.
func (r Reading) isHeldByQuota() bool {
	held := r.ThrottledPeriods.Or(0)
	return held > 0 && heldDivisor*held >= r.Periods.Or(0)
}

// isQuiet reports whether BE caused hardly any of the waits, and the workload's own
// quota none. r is the growth of the counters in a window.
func (r Reading) isQuiet() bool {
	return r.Waited > 0 && blameDivisor*r.ByBE < r.Waited && r.Throttled.Or(0) == 0
}

// throttledWaits returns the most waiting time that the workload's own quota
// explains. r is the growth of the counters in a window.
//
// The kernel counts the time for which a quota throttles a workload once for
// each CPU. But each of its threads on that CPU waits. While one of its threads
// runs on a CPU, BySelf / CPU others wait there on average. While the CPU is
// throttled, that one waits, too.
func (r Reading) throttledWaits() time.Duration {
	throttled, ran := r.Throttled.Or(0), r.CPU.Or(0)
	threads := 1.0
	if ran > 0 {
		threads += float64(r.BySelf) / float64(ran)
	}
	return time.Duration(min(margin*threads*float64(throttled), math.MaxInt64/2))
}

// byHost returns the part of the waiting time in which the hypervisor ran something
// else. r is the growth of the counters in a window. While a CPU of the node has
// work, the hypervisor takes it for Steal of NodeCPU + Steal.
func (r Reading) byHost() time.Duration {
	stolen := float64(r.Steal.Or(0))
	return time.Duration(float64(r.Waited) * stolen / max(stolen+float64(r.NodeCPU.Or(0)), 1))
}

// hardlyForBE reports whether BE is not to blame for the waits: it caused hardly any
// of them, or less than the workload itself, other services, the system or the host.
// r is the growth of the counters in a window. throttled is the part of the waiting
// time that throttling explains. The workload runs nowhere on a throttled CPU. So
// this part is taken from its waits for others, for BE as for the rest of them.
func (r Reading) hardlyForBE(throttled time.Duration) bool {
	if r.Waited <= 0 {
		return false // not known
	}
	others := max(r.Waited-r.BySelf, 1)
	throttled = min(throttled, others)
	left := float64(others-throttled) / float64(others)
	byBE := float64(r.ByBE) * left
	larger := max(float64(r.BySelf), float64(max(r.ByServices, r.BySystem))*left, float64(r.byHost()))
	return byBE == 0 || byBE < float64(r.Waited-throttled)/blameDivisor || byBE < larger
}
