package config

import "tenon.sh/tenon/internal/decide/policy"

// burst returns what is done for bursts: nothing unless a policy asks for it, be
// it only that of one pod, to which the numbers then apply.
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
