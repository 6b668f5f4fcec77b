package config

import (
	"math"
	"time"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// reserved holds the resources that a node keeps for its own work.
type reserved struct {
	CPU    node.Maybe[unit.MilliCPU] `json:"cpu"`
	Memory node.Maybe[unit.Bytes]    `json:"memory"`
}

// overcommit returns the configuration of the batch resources. It returns the
// zero value if colocation is disabled.
func (c Colocation) overcommit() overcommit.Config {
	if !valueOf(c.Enable) {
		return overcommit.Config{}
	}
	return overcommit.Config{
		Enable: true,
		CPU: overcommit.Reclaim{
			ThresholdPercent: valueOf(c.CPUReclaimThresholdPercent),
			LimitPercent:     c.BatchCPUThresholdPercent,
			Policy:           overcommit.ReclaimPolicy(valueOf(c.CPUCalculatePolicy)),
		},
		Memory: overcommit.Reclaim{
			ThresholdPercent: valueOf(c.MemoryReclaimThresholdPercent),
			LimitPercent:     c.BatchMemoryThresholdPercent,
			Policy:           overcommit.ReclaimPolicy(valueOf(c.MemoryCalculatePolicy)),
		},
		Window:        multiply(c.MetricAggregateDurationSeconds, time.Second),
		Look:          multiply(c.MetricReportIntervalSeconds, time.Second),
		DegradeAfter:  multiply(c.DegradeTimeMinutes, time.Minute),
		RenewAfter:    multiply(c.UpdateTimeThresholdSeconds, time.Second),
		WorthPPM:      int64(math.Round(valueOf(c.ResourceDiffThreshold) * 1e6)),
		WithPageCache: valueOf(c.MetricMemoryCollectPolicy) == "usageWithPageCache",
		Peak:          c.Peak.prediction(),

		MinServicePercent: valueOf(c.MinServiceRequestPercent),
	}
}

func (p PeakPrediction) prediction() overcommit.PeakPrediction {
	if !valueOf(p.Enable) {
		return overcommit.PeakPrediction{}
	}
	return overcommit.PeakPrediction{
		Enable:        true,
		MarginPercent: valueOf(p.SafetyMarginPercent),
		ColdStart:     multiply(p.ColdStartMinutes, time.Minute),
	}
}

// multiply returns n times the duration d, but at most a century.
func multiply(n node.Maybe[int64], d time.Duration) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	return time.Duration(min(valueOf(n), int64(century/d))) * d
}

// reserve sets the reserved resources of c from the key reserved of the file.
func (f file) reserve(c *overcommit.Config) {
	if !c.Enable {
		return
	}
	c.ReservedCPU, c.ReservedMemory = valueOf(f.Reserved.CPU), valueOf(f.Reserved.Memory)
}
