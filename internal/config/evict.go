package config

import (
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/model/unit"
)

// lowerBy is the default distance between the threshold of an eviction and the
// usage at which the eviction ends, in percentage points (Koordinator:
// memoryReleaseBufferPercent).
const lowerBy unit.Percent = 2

// evict returns the configuration of evictions. Koordinator enables evictions
// by a feature gate of its agent. Tenon enables an eviction if its threshold is
// set, so the keys of thresholds have no default.
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
		e.CPU.Window = multiply(t.CPUEvictTimeWindowSeconds, time.Second)
	}
	e.Grace = time.Duration(valueOf(t.EvictGracePeriodSeconds)) * time.Second
	e.MostPriority, e.Unlabelled = t.EvictEnabledPriorityThreshold, t.EvictUnlabelled.Or(false)
	return e
}

// evictsByAllocatable reports whether the configuration compares BE satisfaction (the part of its
// request that BE gets) with allocatable resources. This version does not support that, and then
// evicts no work for low satisfaction.
func (t Threshold) evictsByAllocatable() bool {
	return t.CPUEvictPolicy.Or("") == "evictByAllocatable"
}

// evictNotices returns a notice for each key without an effect, because another key is missing.
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
			notices = append(notices, "resource-threshold-config."+pair[0]+" has no effect without "+pair[1])
		}
	}
	if t.evictsByAllocatable() {
		notices = append(notices, "resource-threshold-config.cpuEvictPolicy: evictByAllocatable "+notActedOn+": no work is evicted for lack of satisfaction")
	}
	return notices
}
