package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/suppresscost"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Status returns the status after the last tick.
func (l *Ledger) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status()
}

// follow returns the status, and a channel that the next tick closes.
func (l *Ledger) follow() (Status, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status(), l.next
}

// status is Status for a caller that holds l.mu.
func (l *Ledger) status() Status {
	t := l.last
	s := Status{
		Version: l.version, Started: l.started, At: t.Snapshot.At, Ticks: l.ticks, Blind: l.blind,
		Took: Took{t.Sense, t.Decide, t.Act}, Held: l.countHeld(), Workloads: l.workloads(),
		Batch: t.Batch, Isolation: l.isolation(), Classes: []Class{}, Bounds: []Knob{}, Recent: slices.Clone(l.recent),
		Troubles: l.health.All(), Watermark: watermarkOf(t),
	}
	if t.Shadow != nil {
		s.Shadow = &Shadow{t.Shadow.Total}
	}
	slices.Reverse(s.Recent)
	s.Node = l.node()
	for _, c := range node.Classes {
		sum := Class{Class: c}
		for _, w := range s.Workloads {
			if w.Class == c {
				sum.Workloads++
				if used, known := w.CPU.Value(); known {
					sum.CPU = node.Some(sum.CPU.Or(0) + used)
				}
				if used, known := w.Memory.Value(); known {
					sum.Memory = node.Some(sum.Memory.Or(0) + used)
				}
			}
		}
		if sum.Workloads > 0 {
			s.Classes = append(s.Classes, sum)
		}
	}
	for _, k := range l.bounds() {
		s.Bounds = append(s.Bounds, l.knob(k))
	}
	for _, o := range t.Done {
		if o.Err != nil {
			s.Failing = append(s.Failing, record.WriteOf(t, o))
		}
	}
	return s
}

// watermarkOf returns the cost of the threshold of CPU suppress for best-effort
// work. It returns nil without a threshold.
func watermarkOf(t tick.Tick) *suppresscost.Watermark {
	if !t.Watermark.HasThreshold() {
		return nil
	}
	return &t.Watermark
}

// bounds lists the knobs that limit best-effort work at its contention roots.
func (l *Ledger) bounds() []node.Knob {
	meets := map[node.CgroupPath]bool{}
	for _, w := range l.last.Snapshot.Workloads {
		if w.Class == node.BE {
			meets[w.ContentionRoot] = true
		}
	}
	var all []node.Knob
	for k, a := range l.knobs {
		if a.want.BE && a.want.Intent == plan.Set && meets[k.Cgroup] {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, node.Knob.Compare)
	return all
}

// elapsed returns the time between the snapshots older and newer, or 0 with only one snapshot.
func (l *Ledger) elapsed() time.Duration {
	if l.older.At.IsZero() {
		return 0
	}
	return l.newer.At.Sub(l.older.At)
}

func (l *Ledger) rate(before, after node.Maybe[time.Duration]) node.Maybe[unit.MilliCPU] {
	then, had := before.Value()
	now, has := after.Value()
	rate, ok := trend.Rate(then, now, l.elapsed())
	if !had || !has || !ok {
		return node.Maybe[unit.MilliCPU]{}
	}
	return node.Some(rate)
}

// workloads returns the workloads of the last tick with their resource usage.
func (l *Ledger) workloads() []Workload {
	older, newer := byID(l.older), byID(l.newer)
	all := make([]Workload, 0, len(l.last.Snapshot.Workloads))
	for _, w := range l.last.Snapshot.Workloads {
		then, now := older[w.ID], newer[w.ID]
		c := Workload{
			ID: w.ID, Class: w.Class, Rule: w.Rule, Cgroup: w.Cgroup, ContentionRoot: w.ContentionRoot,
			CPU: l.rate(then.CPU, now.CPU), Memory: w.Usage.Memory,
			CPULimit: w.CPULimit, MemoryLimit: w.MemoryLimit, MemoryRequest: w.MemoryRequest,
		}
		if held, known := l.rate(then.Throttled, now.Throttled).Value(); known {
			// The kernel sums the throttled time over all CPUs, so the result can exceed 100 %.
			c.Throttled = node.Some(min(unit.Percent(held/10), 100))
		}
		c.Objective = w.Objective.RunQueueDelay
		waited := now.Delay.Since(then.Delay)
		c.DelayP99 = waited.Quantile(0.99)
		c.Waits = l.waitsOf(w.ID)
		c.Run = stoppedBy(l.last.Snapshot.Knobs, w)
		c.Misfit = l.last.Misfits[w.ID]
		c.Slice = worker.PlaceOf(l.last.Slices, w.ID)
		if page, has := verdict.Of(l.last, w.ID); has {
			c.Verdict = &page
		}
		if suggestion, has := l.last.Baselines.Of(w.ID); has {
			c.Suggested = &suggestion
		}
		all = append(all, c)
	}
	return all
}

func byID(s node.Snapshot) map[node.WorkloadID]node.Usage {
	all := make(map[node.WorkloadID]node.Usage, len(s.Workloads))
	for _, w := range s.Workloads {
		all[w.ID] = w.Usage
	}
	return all
}

// node returns the description of the machine.
func (l *Ledger) node() Node {
	s := l.last.Snapshot
	n := Node{
		CPUs: len(s.Topology.CPUs), Memory: s.Usage.Memory, MemoryTotal: s.MemoryTotal,
		CPU: l.rate(l.older.Usage.CPU, l.newer.Usage.CPU), Steal: l.rate(l.older.Usage.Steal, l.newer.Usage.Steal),
	}
	classes := l.classesByCPU()
	for _, id := range slices.Sorted(maps.Keys(l.newer.Busy)) {
		then, had := l.older.Busy[id]
		busy, ok := trend.Rate(then, l.newer.Busy[id], l.elapsed())
		if had && ok {
			n.Busy = append(n.Busy, CPU{ID: id, Busy: busy, Class: classes[id]})
		}
	}
	return n
}

// classesByCPU returns how much each class uses each CPU. It omits workloads
// for which the kernel does not count the usage by CPU.
func (l *Ledger) classesByCPU() map[unit.CPU]map[node.Class]unit.MilliCPU {
	all := map[unit.CPU]map[node.Class]unit.MilliCPU{}
	older := byID(l.older)
	for _, w := range l.newer.Workloads {
		for id, now := range w.Usage.PerCPU {
			then, had := older[w.ID].PerCPU[id]
			used, ok := trend.Rate(then, now, l.elapsed())
			if !had || !ok || used == 0 {
				continue
			}
			if all[id] == nil {
				all[id] = map[node.Class]unit.MilliCPU{}
			}
			all[id][w.Class] += used
		}
	}
	return all
}

// busiestFirst orders workloads by their CPU usage, largest first.
func busiestFirst(a, b Workload) int {
	return cmp.Or(cmp.Compare(b.CPU.Or(-1), a.CPU.Or(-1)), compareIDs(a, b))
}
