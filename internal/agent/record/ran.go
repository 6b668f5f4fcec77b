package record

import (
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// runTimes holds the time for which each CPU ran since the previous line. It is
// in the order of the CPUs and ends with the last CPU that ran. A hundred
// workloads on a hundred CPUs have ten thousand counters in a tick, and few of
// them change. If it is nil, the line has all counters in full.
type runTimes []time.Duration

// ranSince returns the differences between two readings. It returns nil if the
// readings have different CPUs.
func ranSince(last, now map[unit.CPU]time.Duration) runTimes {
	if len(last) != len(now) || len(now) == 0 {
		return nil
	}
	var spent [unit.MaxCPUs]time.Duration
	var counted unit.CPUSet
	for c, after := range now {
		before, had := last[c]
		if !had || c < 0 || c >= unit.MaxCPUs {
			return nil
		}
		spent[c] = after - before
		counted.Add(c)
	}
	all := runTimes{}
	end := 0
	for c := range counted.All() {
		all = append(all, spent[c])
		if spent[c] != 0 {
			end = len(all)
		}
	}
	return all[:end]
}

// addTo adds the differences to the counters of the previous line, and returns
// the result.
func (r runTimes) addTo(last map[unit.CPU]time.Duration) map[unit.CPU]time.Duration {
	now := maps.Clone(last)
	for i, c := range slices.Sorted(maps.Keys(last)) {
		if i == len(r) {
			break
		}
		now[c] += r[i]
	}
	return now
}

// usedSince returns how much a workload used since the previous line.
func usedSince(last, now node.Usage) useLine {
	l := useLine{Usage: now, Ran: ranSince(last.PerCPU, now.PerCPU)}
	if l.Ran != nil {
		l.PerCPU = nil
	}
	if l.Counted = countedSince(last.Delay.Counts, now.Delay.Counts); l.Counted != nil {
		l.Delay.Counts = nil
	}
	return l
}
