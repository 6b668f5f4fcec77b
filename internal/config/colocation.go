package config

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Colocation is colocation-config. It configures the batch resources: CPU and memory that other
// work did not request, or requests but does not use. Percentages are of the node's capacity.
type Colocation struct {
	Enable node.Maybe[bool] `json:"enable,omitzero"`

	MetricAggregateDurationSeconds node.Maybe[int64]  `json:"metricAggregateDurationSeconds,omitzero" range:"1.."`
	MetricReportIntervalSeconds    node.Maybe[int64]  `json:"metricReportIntervalSeconds,omitzero" range:"1.."`
	MetricAggregatePolicy          Aggregate          `json:"metricAggregatePolicy,omitzero" later:""`
	MetricMemoryCollectPolicy      node.Maybe[string] `json:"metricMemoryCollectPolicy,omitzero" oneof:"usageWithoutPageCache usageWithHotPageCache usageWithPageCache" taken:"*"`

	CPUReclaimThresholdPercent    node.Maybe[unit.Percent] `json:"cpuReclaimThresholdPercent,omitzero" range:"0.." likely:"0..100"`
	CPUCalculatePolicy            node.Maybe[string]       `json:"cpuCalculatePolicy,omitzero" oneof:"usage maxUsageRequest" taken:"*"`
	MemoryReclaimThresholdPercent node.Maybe[unit.Percent] `json:"memoryReclaimThresholdPercent,omitzero" range:"0.." likely:"0..100"`
	MemoryCalculatePolicy         node.Maybe[string]       `json:"memoryCalculatePolicy,omitzero" oneof:"usage request maxUsageRequest" taken:"*"`
	BatchCPUThresholdPercent      node.Maybe[unit.Percent] `json:"batchCPUThresholdPercent,omitzero" range:"0.." likely:"0..100"`
	BatchMemoryThresholdPercent   node.Maybe[unit.Percent] `json:"batchMemoryThresholdPercent,omitzero" range:"0.." likely:"0..100"`

	// MinServiceRequestPercent exists only in Tenon.
	MinServiceRequestPercent node.Maybe[unit.Percent] `json:"minServiceRequestPercent,omitzero" range:"0..100"`

	DegradeTimeMinutes         node.Maybe[int64]   `json:"degradeTimeMinutes,omitzero" range:"1.."`
	UpdateTimeThresholdSeconds node.Maybe[int64]   `json:"updateTimeThresholdSeconds,omitzero" range:"1.."`
	ResourceDiffThreshold      node.Maybe[float64] `json:"resourceDiffThreshold,omitzero" range:">0..1"`

	MidCPUThresholdPercent         node.Maybe[unit.Percent] `json:"midCPUThresholdPercent,omitzero" range:"0..100" later:""`
	MidMemoryThresholdPercent      node.Maybe[unit.Percent] `json:"midMemoryThresholdPercent,omitzero" range:"0..100" later:""`
	MidUnallocatedPercent          node.Maybe[unit.Percent] `json:"midUnallocatedPercent,omitzero" range:"0..100" later:""`
	MidReclaimMode                 node.Maybe[string]       `json:"midReclaimMode,omitzero" oneof:"static" taken:"*" later:""`
	MidStaticCPUReservedPercent    node.Maybe[unit.Percent] `json:"midStaticCPUReservedPercent,omitzero" range:"0..100" later:""`
	MidStaticMemoryReservedPercent node.Maybe[unit.Percent] `json:"midStaticMemoryReservedPercent,omitzero" range:"0..100" later:""`

	// Peak exists only in Tenon. In Koordinator, flags of the agent configure the
	// peak prediction.
	Peak PeakPrediction `json:"peakPrediction,omitzero"`

	// Extensions contains keys of other programs, which Tenon does not use.
	Extensions map[string]any `json:"extensions,omitempty" later:""`
}

// PeakPrediction configures whether the predicted peak usage of other work is used.
type PeakPrediction struct {
	Enable              node.Maybe[bool]         `json:"enable,omitzero"`
	SafetyMarginPercent node.Maybe[unit.Percent] `json:"safetyMarginPercent,omitzero" range:"0..100"`
	ColdStartMinutes    node.Maybe[int64]        `json:"coldStartMinutes,omitzero" range:"0..10080"`
}

// Aggregate lists the time windows over which usage is averaged.
type Aggregate struct {
	Durations []Duration `json:"durations,omitempty" later:""`
}

// Duration is a time.Duration in text form: "5m".
type Duration time.Duration

// MarshalText writes a text such as "5m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads each text that time.ParseDuration accepts.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
