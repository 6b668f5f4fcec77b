package overcommit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A resource holds what differs between CPU and memory, so that one formula can compute both.
type resource[T unit.MilliCPU | unit.Bytes] struct {
	Reclaim
	capacity T
	reserved T
	unknown  string // the missing input of the whole node; empty: none
	unneeded bool   // other work requests so little that nothing is offered
	name     string
	limitKey string
	// countedByRequest lists the classes that always count by their requests:
	// BE may not use their CPUs even when these are idle.
	countedByRequest []node.Class
	// startsFor is the time for which a workload that is starting counts by its
	// request, too. 0 means until it has started.
	startsFor time.Duration
	request   func(*node.Workload) node.Maybe[T]
	measured  func(*node.Workload) bool
	series    func(*account) *series
	peak      func(*peak) *int64
	scale     T // the amount of one unit of a series per second
}

func cpuOf(c Config, p facts.NodeCPUs, s node.Snapshot, unneeded bool) resource[unit.MilliCPU] {
	cpus := p.Online(s)
	r := resource[unit.MilliCPU]{
		Reclaim: c.CPU, capacity: unit.CPUs(cpus.Len()), reserved: c.ReservedCPU, unneeded: unneeded,
		name: "CPU", limitKey: "batchCPUThresholdPercent", countedByRequest: aloneOn(p), scale: 1, startsFor: c.Window,
		request:  func(w *node.Workload) node.Maybe[unit.MilliCPU] { return w.CPURequest },
		measured: func(w *node.Workload) bool { return w.Usage.CPU.Known() },
		series:   func(a *account) *series { return &a.CPU },
		peak:     func(p *peak) *int64 { return &p.CPU },
	}
	busy := false
	for cpu := range cpus.All() {
		if _, busy = s.Busy[cpu]; busy {
			break
		}
	}
	if !busy {
		r.unknown = "the use of the CPUs is unknown"
	}
	return r
}

// aloneOn lists the classes whose CPUs BE may not use.
func aloneOn(p facts.NodeCPUs) []node.Class {
	if !p.LendLSR {
		return []node.Class{node.LSE, node.LSR}
	}
	return []node.Class{node.LSE}
}

func bytesOf(c Config, s node.Snapshot, unneeded bool) resource[unit.Bytes] {
	r := resource[unit.Bytes]{
		Reclaim: c.Memory, capacity: s.MemoryTotal.Or(0), reserved: c.ReservedMemory, unneeded: unneeded,
		name: "memory", limitKey: "batchMemoryThresholdPercent", scale: 1 << 10,
		request:  func(w *node.Workload) node.Maybe[unit.Bytes] { return w.MemoryRequest },
		measured: func(w *node.Workload) bool { return memoryUsed(w.Usage, c.WithPageCache).Known() },
		series:   func(a *account) *series { return &a.Memory },
		peak:     func(p *peak) *int64 { return &p.Memory },
	}
	switch {
	case !s.MemoryTotal.Known():
		r.unknown = "the size of the node's memory is unknown"
	case !memoryUsed(s.Usage, false).Known() && c.Memory.Policy != ByRequest:
		r.unknown = "the use of the node's memory is unknown"
	}
	return r
}

// unneeded reports whether the work of other classes requests less than
// MinServicePercent of the CPU and of the memory of the node. Of a node whose size is
// not known it reports false.
func (c Config) unneeded(p facts.NodeCPUs, s node.Snapshot) bool {
	total, known := s.MemoryTotal.Value()
	if c.MinServicePercent <= 0 || !known {
		return false
	}
	var cpu unit.MilliCPU
	var memory unit.Bytes
	for _, w := range slices.Concat(s.Workloads, s.Arriving) {
		if w.Class != node.BE {
			cpu, memory = cpu+w.CPURequest.Or(0), memory+w.MemoryRequest.Or(0)
		}
	}
	return c.Unneeded(cpu, unit.CPUs(p.Online(s).Len()), memory, total)
}

// formula computes AmountOf three times, with the usage in the long window, in the
// short window, and in the last samples, and returns the smallest result.
func formula[T unit.MilliCPU | unit.Bytes](r resource[T], c Config, d demand, s node.Snapshot) finding[T] {
	f := r.sum(c, d, s, func(u *series) int64 { return mean(u.Long, d.Long, u.Seen) })
	f.over = c.Window
	if short := r.sum(c, d, s, func(u *series) int64 { return mean(u.Short, d.Short, u.Seen) }); short.value < f.value {
		f, f.over = short, shortWindow
	}
	if last := r.sum(c, d, s, func(u *series) int64 { return lasting(u.Short, d.Short) }); last.value < f.value {
		f, f.over = last, d.lastSamples()
	}
	if r.unknown != "" {
		f.missing = r.unknown
	}
	return f
}

// sum computes the formula with one measure of the usage, which returns an amount
// per second.
func (r resource[T]) sum(c Config, d demand, s node.Snapshot, usage func(*series) int64) finding[T] {
	var all [len(sides)]share[T]
	var missing []string
	for i := range s.Workloads {
		w, a := &s.Workloads[i], &d.Work[i]
		side := slices.Index(sides[:], w.Class)
		if side < 0 || usesBatch(w) {
			continue
		}
		u := r.series(a)
		used := node.Maybe[T]{}
		if u.Seen > 0 {
			used = node.Some(T(usage(u)) * r.scale)
		}
		seen := time.Duration(u.Seen) * time.Millisecond
		begins := w.Starting && (r.startsFor == 0 || seen < r.startsFor)
		if !all[side].add(r, c.Peak, w, &a.Peak, used, begins) {
			missing = append(missing, string(w.ID))
		}
	}
	for i := range s.Arriving {
		w := &s.Arriving[i]
		if side := slices.Index(sides[:], w.Class); side >= 0 && !usesBatch(w) && r.request(w).Known() {
			all[side].add(r, PeakPrediction{}, w, nil, node.Maybe[T]{}, true)
		}
	}
	system := T(usage(r.series(&d.System))) * r.scale
	if c.Peak.Enable {
		system = max(system, T(*r.peak(&d.System.Peak))*r.scale)
	}
	var others T
	for _, h := range all {
		others += h.sum
	}
	a := AmountOf(r.Reclaim, Sums[T]{Capacity: r.capacity, Reserved: r.reserved, System: system, Others: others, Unneeded: r.unneeded})
	return finding[T]{value: a.Value(), policy: r.Policy, terms: r.terms(c, a, all), missing: r.nameMissing(missing)}
}

// nameMissing names the workloads whose usage is unknown, or returns "".
func (r resource[T]) nameMissing(ids []string) string {
	const most = 3
	switch n := len(ids) - most; {
	case len(ids) == 0:
		return ""
	case n > 0:
		return fmt.Sprintf("the %s use of %s and %d more is unknown", r.name, strings.Join(ids[:most], ", "), n)
	}
	return fmt.Sprintf("the %s use of %s is unknown", r.name, strings.Join(ids, ", "))
}
