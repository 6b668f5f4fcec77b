package config

import (
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Threshold is resource-threshold-config: BE must give way if the resource usage of the node is
// above a threshold. Percentages are of the node's capacity. But if the name of the key
// contains Allocatable, they are of the node's allocatable resources.
type Threshold struct {
	Enable node.Maybe[bool] `json:"enable,omitzero"`

	CPUSuppressThresholdPercent node.Maybe[unit.Percent] `json:"cpuSuppressThresholdPercent,omitzero" range:"0..100"`
	CPUSuppressMinPercent       node.Maybe[unit.Percent] `json:"cpuSuppressMinPercent,omitzero" range:"0..100"`
	CPUSuppressPolicy           node.Maybe[string]       `json:"cpuSuppressPolicy,omitzero" oneof:"cpuset cfsQuota" taken:"*"`
	// CPUSuppressLendLSR exists only in Tenon.
	CPUSuppressLendLSR node.Maybe[bool] `json:"cpuSuppressLendLSR,omitzero"`

	MemoryEvictThresholdPercent            node.Maybe[unit.Percent] `json:"memoryEvictThresholdPercent,omitzero" range:"0..100"`
	MemoryEvictLowerPercent                node.Maybe[unit.Percent] `json:"memoryEvictLowerPercent,omitzero" range:"0..100"`
	MemoryAllocatableEvictThresholdPercent node.Maybe[unit.Percent] `json:"memoryAllocatableEvictThresholdPercent,omitzero" range:"0.." later:""`
	MemoryAllocatableEvictLowerPercent     node.Maybe[unit.Percent] `json:"memoryAllocatableEvictLowerPercent,omitzero" range:"0.." later:""`

	CPUEvictBESatisfactionLowerPercent  node.Maybe[unit.Percent] `json:"cpuEvictBESatisfactionLowerPercent,omitzero" range:"1..60" taken:"0..100"`
	CPUEvictBESatisfactionUpperPercent  node.Maybe[unit.Percent] `json:"cpuEvictBESatisfactionUpperPercent,omitzero" range:"1..99" taken:"0..100"`
	CPUEvictBEUsageThresholdPercent     node.Maybe[unit.Percent] `json:"cpuEvictBEUsageThresholdPercent,omitzero" range:"0..100"`
	CPUEvictTimeWindowSeconds           node.Maybe[int64]        `json:"cpuEvictTimeWindowSeconds,omitzero" range:"1.."`
	CPUEvictPolicy                      node.Maybe[string]       `json:"cpuEvictPolicy,omitzero" oneof:"evictByRealLimit evictByAllocatable" taken:"*"`
	CPUEvictThresholdPercent            node.Maybe[unit.Percent] `json:"cpuEvictThresholdPercent,omitzero" range:"0..100"`
	CPUEvictLowerPercent                node.Maybe[unit.Percent] `json:"cpuEvictLowerPercent,omitzero" range:"0..100"`
	CPUAllocatableEvictThresholdPercent node.Maybe[unit.Percent] `json:"cpuAllocatableEvictThresholdPercent,omitzero" range:"0.." later:""`
	CPUAllocatableEvictLowerPercent     node.Maybe[unit.Percent] `json:"cpuAllocatableEvictLowerPercent,omitzero" range:"0.." later:""`

	// EvictGracePeriodSeconds exists only in Tenon.
	EvictGracePeriodSeconds node.Maybe[int64] `json:"evictGracePeriodSeconds,omitzero" range:"0..3600"`
	// EvictUnlabelled is a key that only Tenon has.
	EvictUnlabelled node.Maybe[bool] `json:"evictUnlabelled,omitzero"`
	// Pods with a priority above these values are not evicted.
	EvictEnabledPriorityThreshold     node.Maybe[int64] `json:"evictEnabledPriorityThreshold,omitzero" range:"-2147483648..2147483647"`
	AllocatableEvictPriorityThreshold node.Maybe[int64] `json:"allocatableEvictPriorityThreshold,omitzero" range:"-2147483648..7999" later:""`
}

// lowerBy is the default distance between the threshold of an eviction and the
// usage at which the eviction ends, in percentage points (Koordinator:
// memoryReleaseBufferPercent).
const lowerBy unit.Percent = 2

// suppress returns the configuration of CPU suppress.
func (t Threshold) suppress() suppress.Config {
	return suppress.Config{
		Enable:           valueOf(t.Enable),
		ThresholdPercent: valueOf(t.CPUSuppressThresholdPercent),
		MinPercent:       valueOf(t.CPUSuppressMinPercent),
		Policy:           suppress.Policy(valueOf(t.CPUSuppressPolicy)),
	}
}

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
