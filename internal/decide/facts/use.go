package facts

import (
	"time"

	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// useTau is the time constant of the mean CPU usage. After a change of
	// load, the mean follows in about this time. Koordinator decides on samples
	// of one second.
	useTau = time.Second
	// placeTau is the time constant of the mean usage of each CPU by LS. It is
	// longer than useTau, because the scheduler moves threads often, and BE
	// should follow only lasting moves.
	placeTau = 5 * time.Second
)

// Use holds the CPU usage of workloads and of CPUs, as means over about useTau.
type Use struct {
	At       time.Time                         `json:"at,omitzero"`
	Elapsed  time.Duration                     `json:"elapsed_ns,omitempty"` // time between the last two snapshots
	Counter  map[node.WorkloadID]time.Duration `json:"counter,omitempty"`
	Workload map[node.WorkloadID]unit.MilliCPU `json:"workload,omitempty"`
	Latest   map[node.WorkloadID]unit.MilliCPU `json:"latest,omitempty"` // the newest sample, not smoothed
	Busy     map[unit.CPU]time.Duration        `json:"busy,omitempty"`
	CPU      map[unit.CPU]unit.MilliCPU        `json:"cpu,omitempty"`
	// PerCPU is the CPU time that each LS workload has used on each CPU, from its
	// counters. Sensitive is the usage of each CPU by all LS work, as a mean over
	// about placeTau.
	PerCPU    map[node.WorkloadID]map[unit.CPU]time.Duration `json:"per_cpu,omitempty"`
	Sensitive map[unit.CPU]unit.MilliCPU                     `json:"sensitive,omitempty"`
}

// Observe returns the usage after the snapshot s. A mean needs two counter
// readings, so a new workload or CPU has none yet.
func (u Use) Observe(s node.Snapshot) Use {
	var elapsed time.Duration
	if !u.At.IsZero() {
		elapsed = s.At.Sub(u.At)
	}
	next := Use{
		At:      s.At,
		Elapsed: elapsed,
		Counter: make(map[node.WorkloadID]time.Duration, len(s.Workloads)),
		Busy:    s.Busy,
		PerCPU:  map[node.WorkloadID]map[unit.CPU]time.Duration{},
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if now, known := w.Usage.CPU.Value(); known {
			next.Counter[w.ID] = now
		}
		if w.Class.Sensitive() && len(w.Usage.PerCPU) > 0 {
			next.PerCPU[w.ID] = w.Usage.PerCPU
		}
	}
	next.Latest = trend.Follow(nil, u.Counter, next.Counter, elapsed, 0)
	next.Workload = trend.Smooth(u.Workload, next.Latest, elapsed, useTau)
	next.CPU = trend.Follow(u.CPU, u.Busy, next.Busy, elapsed, useTau)
	next.Sensitive = u.updateSensitive(next.PerCPU, elapsed)
	return next
}

// updateSensitive updates the mean usage of each CPU by LS. The new sample is
// the difference between the counters of u and those in perCPU.
func (u Use) updateSensitive(perCPU map[node.WorkloadID]map[unit.CPU]time.Duration, elapsed time.Duration) map[unit.CPU]unit.MilliCPU {
	// A hundred workloads on a hundred CPUs have ten thousand counters in each
	// tick. An array sums them faster than a map.
	var spent [unit.MaxCPUs]time.Duration
	var counted [unit.MaxCPUs]bool
	for id, after := range perCPU {
		before, had := u.PerCPU[id]
		if !had {
			continue
		}
		for cpu, now := range after {
			then, known := before[cpu]
			if known && now >= then && cpu >= 0 && cpu < unit.MaxCPUs {
				spent[cpu] += now - then
				counted[cpu] = true
			}
		}
	}
	next := map[unit.CPU]unit.MilliCPU{}
	for cpu := range unit.CPU(unit.MaxCPUs) {
		if !counted[cpu] {
			continue
		}
		sample, ok := trend.Rate(0, spent[cpu], elapsed)
		if !ok {
			continue
		}
		if mean, seen := u.Sensitive[cpu]; seen {
			sample = trend.Decay(mean, sample, elapsed, placeTau)
		}
		next[cpu] = sample
	}
	return next
}
