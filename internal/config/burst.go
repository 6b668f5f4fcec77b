package config

import (
	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Burst is cpu-burst-config: how much CPU time an LS workload may save and borrow for its bursts.
type Burst struct {
	Policy                     node.Maybe[string]       `json:"policy,omitzero" oneof:"none cpuBurstOnly cfsQuotaBurstOnly auto"`
	CPUBurstPercent            node.Maybe[unit.Percent] `json:"cpuBurstPercent,omitzero" range:"1..10000"`
	CFSQuotaBurstPercent       node.Maybe[unit.Percent] `json:"cfsQuotaBurstPercent,omitzero" range:"100.." likely:"100..10000"`
	CFSQuotaBurstPeriodSeconds node.Maybe[int64]        `json:"cfsQuotaBurstPeriodSeconds,omitzero" range:"-1.."`
	SharePoolThresholdPercent  node.Maybe[unit.Percent] `json:"sharePoolThresholdPercent,omitzero" range:"0..100"`
}

// burst converts the strategy to the form of package burst. It sets the numbers even if the
// policy is none, because they also apply to pods that set only their own policy.
func (b Burst) burst() burst.Config {
	named := valueOf(b.Policy)
	if named == "none" {
		named = ""
	}
	return burst.Config{
		Policy:        burst.Policy(named),
		CPUPercent:    valueOf(b.CPUBurstPercent),
		QuotaPercent:  valueOf(b.CFSQuotaBurstPercent),
		PeriodSeconds: valueOf(b.CFSQuotaBurstPeriodSeconds),
		PoolPercent:   valueOf(b.SharePoolThresholdPercent),
	}
}
