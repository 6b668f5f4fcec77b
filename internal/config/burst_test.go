package config

import (
	"testing"

	"tenon.sh/tenon/internal/decide/burst"
)

func TestBurstIsOffUnlessAPolicyIsNamed(t *testing.T) {
	for text, want := range map[string]burst.Config{
		"cpu-burst-config: {cpuBurstPercent: 500}":               {CPUPercent: 500, QuotaPercent: 300, PeriodSeconds: -1, PoolPercent: 50},
		"cpu-burst-config: {policy: none, cpuBurstPercent: 500}": {CPUPercent: 500, QuotaPercent: 300, PeriodSeconds: -1, PoolPercent: 50},
		"cpu-burst-config: {policy: auto}": {
			Policy: burst.Both, CPUPercent: 1000, QuotaPercent: 300, PeriodSeconds: -1, PoolPercent: 50,
		},
		"cpu-burst-config: {policy: cfsQuotaBurstOnly, cfsQuotaBurstPercent: 150, cfsQuotaBurstPeriodSeconds: 60, sharePoolThresholdPercent: 0}": {
			Policy: burst.Borrow, CPUPercent: 1000, QuotaPercent: 150, PeriodSeconds: 60,
		},
	} {
		if c := mustParse(t, header+text+"\n"); c.Policy.Burst != want {
			t.Errorf("%s: %+v, want %+v", text, c.Policy.Burst, want)
		}
	}
}

func TestLSRIsLentUnlessTheOwnerSaysOtherwise(t *testing.T) {
	for text, want := range map[string]bool{
		"resource-threshold-config: {enable: true}":                             true,
		"resource-threshold-config: {enable: true, cpuSuppressLendLSR: false}":  false,
		"resource-threshold-config: {enable: false, cpuSuppressLendLSR: false}": true, // the section is disabled
	} {
		if c := mustParse(t, header+text+"\n"); c.Policy.NodeCPUs.LendLSR != want {
			t.Errorf("%s: lent %v, want %v", text, c.Policy.NodeCPUs.LendLSR, want)
		}
	}
}
