package config

import (
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// Colocation is colocation-config: how much of what others requested or left
// idle is offered to batch work. Percentages are of the node's capacity.
type Colocation struct {
	Enable node.Maybe[bool] `json:"enable,omitzero" later:"false"`

	MetricAggregateDurationSeconds node.Maybe[int64]  `json:"metricAggregateDurationSeconds,omitzero" range:"1.." later:""`
	MetricReportIntervalSeconds    node.Maybe[int64]  `json:"metricReportIntervalSeconds,omitzero" range:"1.." later:""`
	MetricAggregatePolicy          Aggregate          `json:"metricAggregatePolicy,omitzero" later:""`
	MetricMemoryCollectPolicy      node.Maybe[string] `json:"metricMemoryCollectPolicy,omitzero" oneof:"usageWithoutPageCache usageWithHotPageCache usageWithPageCache" later:""`

	CPUReclaimThresholdPercent    node.Maybe[unit.Percent] `json:"cpuReclaimThresholdPercent,omitzero" range:"0.." later:""`
	CPUCalculatePolicy            node.Maybe[string]       `json:"cpuCalculatePolicy,omitzero" oneof:"usage maxUsageRequest" later:""`
	MemoryReclaimThresholdPercent node.Maybe[unit.Percent] `json:"memoryReclaimThresholdPercent,omitzero" range:"0.." later:""`
	MemoryCalculatePolicy         node.Maybe[string]       `json:"memoryCalculatePolicy,omitzero" oneof:"usage request maxUsageRequest" later:""`
	BatchCPUThresholdPercent      node.Maybe[unit.Percent] `json:"batchCPUThresholdPercent,omitzero" range:"0.." later:""`
	BatchMemoryThresholdPercent   node.Maybe[unit.Percent] `json:"batchMemoryThresholdPercent,omitzero" range:"0.." later:""`

	DegradeTimeMinutes         node.Maybe[int64]   `json:"degradeTimeMinutes,omitzero" range:"1.." later:""`
	UpdateTimeThresholdSeconds node.Maybe[int64]   `json:"updateTimeThresholdSeconds,omitzero" range:"1.." later:""`
	ResourceDiffThreshold      node.Maybe[float64] `json:"resourceDiffThreshold,omitzero" range:">0..1" later:""`

	MidCPUThresholdPercent         node.Maybe[unit.Percent] `json:"midCPUThresholdPercent,omitzero" range:"0..100" later:""`
	MidMemoryThresholdPercent      node.Maybe[unit.Percent] `json:"midMemoryThresholdPercent,omitzero" range:"0..100" later:""`
	MidUnallocatedPercent          node.Maybe[unit.Percent] `json:"midUnallocatedPercent,omitzero" range:"0..100" later:""`
	MidReclaimMode                 node.Maybe[string]       `json:"midReclaimMode,omitzero" oneof:"static" later:""`
	MidStaticCPUReservedPercent    node.Maybe[unit.Percent] `json:"midStaticCPUReservedPercent,omitzero" range:"0..100" later:""`
	MidStaticMemoryReservedPercent node.Maybe[unit.Percent] `json:"midStaticMemoryReservedPercent,omitzero" range:"0..100" later:""`

	// Extensions are others' keys; Tenon has none.
	Extensions map[string]any `json:"extensions,omitempty" later:""`
}

// Aggregate says over which times use is averaged.
type Aggregate struct {
	Durations []Duration `json:"durations,omitempty" later:""`
}

// Duration is a time.Duration that is written as text: "5m".
type Duration time.Duration

// MarshalText writes "5m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
