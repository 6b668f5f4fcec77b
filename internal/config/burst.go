package config

import "tenon.sh/tenon/internal/decide/burst"

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
