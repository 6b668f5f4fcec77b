package policy

import (
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/trend"
	"tenon.sh/tenon/internal/unit"
)

// useTau is how long a sample of CPU use counts: the mean follows a change of
// load in about this time. The reference system decides on samples of one
// second.
const useTau = time.Second

// use is the CPU use of workloads and CPUs, as means over about useTau.
type use struct {
	At       time.Time                         `json:"at,omitzero"`
	Elapsed  time.Duration                     `json:"elapsed_ns,omitempty"` // between the last two snapshots
	Counter  map[node.WorkloadID]time.Duration `json:"counter,omitempty"`
	Workload map[node.WorkloadID]unit.MilliCPU `json:"workload,omitempty"`
	Latest   map[node.WorkloadID]unit.MilliCPU `json:"latest,omitempty"` // of the last sample alone
	Busy     map[unit.CPU]time.Duration        `json:"busy,omitempty"`
	CPU      map[unit.CPU]unit.MilliCPU        `json:"cpu,omitempty"`
}

// observe adds the counters of s. What has no rate yet, or no counter any
// more, has no mean.
func (u use) observe(s node.Snapshot) use {
	var elapsed time.Duration
	if !u.At.IsZero() {
		elapsed = s.At.Sub(u.At)
	}
	next := use{
		At:       s.At,
		Elapsed:  elapsed,
		Counter:  map[node.WorkloadID]time.Duration{},
		Workload: map[node.WorkloadID]unit.MilliCPU{},
		Latest:   map[node.WorkloadID]unit.MilliCPU{},
		Busy:     s.Busy,
		CPU:      map[unit.CPU]unit.MilliCPU{},
	}
	for _, w := range s.Workloads {
		if now, known := w.Usage.CPU.Value(); known {
			next.Counter[w.ID] = now
		}
	}
	follow(next.Latest, nil, u.Counter, next.Counter, elapsed)
	follow(next.Workload, u.Workload, u.Counter, next.Counter, elapsed)
	follow(next.CPU, u.CPU, u.Busy, next.Busy, elapsed)
	return next
}

// follow fills next with the means after elapsed, where the counter has two
// readings.
func follow[K comparable](next, mean map[K]unit.MilliCPU, before, after map[K]time.Duration, elapsed time.Duration) {
	for k, now := range after {
		then, had := before[k]
		rate, ok := trend.Rate(then, now, elapsed)
		if !had || !ok {
			continue
		}
		if m, seen := mean[k]; seen {
			rate = trend.Decay(m, rate, elapsed, useTau)
		}
		next[k] = rate
	}
}
