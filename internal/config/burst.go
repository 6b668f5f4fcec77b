package config

import "tenon.sh/tenon/internal/decide/policy"

// burst converts the strategy to the form of package policy. It sets the numbers even if the
// policy is none, because they also apply to pods that set only their own policy.
func (b Burst) burst() policy.Burst {
	named := valueOf(b.Policy)
	if named == "none" {
		named = ""
	}
	return policy.Burst{
		Policy:        policy.BurstPolicy(named),
		CPUPercent:    valueOf(b.CPUBurstPercent),
		QuotaPercent:  valueOf(b.CFSQuotaBurstPercent),
		PeriodSeconds: valueOf(b.CFSQuotaBurstPeriodSeconds),
		PoolPercent:   valueOf(b.SharePoolThresholdPercent),
	}
}
