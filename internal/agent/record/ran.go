package record

import (
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// runTimes holds the run time of each CPU since the previous line, in the order
// of CPUs, up to the last CPU that ran. It keeps lines short: a hundred
// workloads on a hundred CPUs have ten thousand counters, of which few change
// in a tick. If it is nil, the line has all counters in full.
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

// addTo returns the counters of the previous line plus the differences.
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

// usedSince returns the line for a workload's resource usage since the last line.
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
