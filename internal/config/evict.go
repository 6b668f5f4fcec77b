package config

import (
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/model/unit"
)

// lowerBy is the default distance of the lower end from an eviction threshold
// (Koordinator: memoryReleaseBufferPercent).
const lowerBy unit.Percent = 2

// evict returns which best-effort work is to be ended, and when. Koordinator
// puts evictions behind a gate of the agent; here it is the key of a threshold
// that switches one on, so none of these has a default.
func (t Threshold) evict() evict.Config {
	if !t.Enable.Or(false) {
		return evict.Config{}
	}
	var e evict.Config
	if over := t.MemoryEvictThresholdPercent.Or(0); over > 0 {
		e.Memory = evict.MemoryConfig{ThresholdPercent: over, LowerPercent: t.MemoryEvictLowerPercent.Or(max(over-lowerBy, 0))}
	}
	lower, upper := t.CPUEvictBESatisfactionLowerPercent.Or(0), t.CPUEvictBESatisfactionUpperPercent.Or(0)
	if lower > 0 && upper > 0 && !t.evictsByAllocatable() {
		e.CPU.SatisfactionLower, e.CPU.SatisfactionUpper = lower, upper
		e.CPU.UsageThreshold = valueOf(t.CPUEvictBEUsageThresholdPercent)
	}
	if over := t.CPUEvictThresholdPercent.Or(0); over > 0 {
		e.CPU.ThresholdPercent, e.CPU.LowerPercent = over, t.CPUEvictLowerPercent.Or(max(over-lowerBy, 0))
	}
	if e == (evict.Config{}) {
		return e
	}
	if e.CPU != (evict.CPUConfig{}) {
		e.CPU.Window = time.Duration(valueOf(t.CPUEvictTimeWindowSeconds)) * time.Second
	}
	e.Grace = time.Duration(valueOf(t.EvictGracePeriodSeconds)) * time.Second
	e.MostPriority = t.EvictEnabledPriorityThreshold
	return e
}

// evictsByAllocatable reports whether satisfaction is to be measured by what is
// allocatable, which this version cannot do. It then ends no work by another
// measure.
func (t Threshold) evictsByAllocatable() bool {
	return t.CPUEvictPolicy.Or("") == "evictByAllocatable"
}

// evictNotices names the keys that do nothing because another one is missing.
func (t Threshold) evictNotices() []string {
	if !t.Enable.Or(false) {
		return nil
	}
	var notices []string
	for _, pair := range [][2]string{
		{"memoryEvictLowerPercent", "memoryEvictThresholdPercent"},
		{"cpuEvictLowerPercent", "cpuEvictThresholdPercent"},
		{"cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"},
		{"cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent"},
	} {
		if percentOf(t, pair[0]).Known() && !percentOf(t, pair[1]).Known() {
			notices = append(notices, "resource-threshold-config."+pair[0]+" does nothing without "+pair[1])
		}
	}
	if t.evictsByAllocatable() {
		notices = append(notices, "resource-threshold-config.cpuEvictPolicy: evictByAllocatable "+notActedOn+": no work is ended for want of satisfaction")
	}
	return notices
}
