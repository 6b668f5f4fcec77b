package burst

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestHugeNumbersDoNotOverflow uses the largest quota of the kernel, and the
// largest percentages and periods that the configuration accepts.
func TestHugeNumbersDoNotOverflow(t *testing.T) {
	for _, percent := range []unit.Percent{100, 101, 10000, 1 << 40, 1<<63 - 1} {
		for _, quota := range []time.Duration{node.MinQuota, time.Second, maxBandwidth} {
			base := node.CPUMax{Quota: quota, Period: node.DefaultPeriod}
			x := burster{Config: Config{Policy: Both, CPUPercent: percent, QuotaPercent: percent, PeriodSeconds: 1<<63 - 1}}
			x.snap.Capabilities = node.Capabilities{node.FeatureCPUBurst: {Verdict: node.Yes}}
			w := node.Workload{ID: "web", Cgroup: "web"}
			if most := x.maxFor(x.Config, &w, base); most < base.Quota || most > maxBandwidth {
				t.Errorf("%v of %v: up to %v", percent, base, most)
			}
			if s := x.maxSavings(base); s < 0 {
				t.Errorf("%v of %v: savings up to %d", percent, base, s)
			}
			v := base
			x.save(x.Config, &v, base)
			if v.Burst < 0 || v.Burst > v.Quota || v.Burst+v.Quota > maxBandwidth {
				t.Errorf("%v of %v: burst %v", percent, base, v.Burst)
			}
		}
	}
}

// TestALoanOutlivesAClockThatWasSetBack sets the clock back during a loan. No
// savings may come from time that did not pass, and the loan must be given
// back.
func TestALoanOutlivesAClockThatWasSetBack(t *testing.T) {
	future := time.Unix(1e6, 0)
	x := burster{Config: Config{Policy: Borrow, CPUPercent: 1000, QuotaPercent: 300, PeriodSeconds: 60, PoolPercent: 50}, next: Lending{Work: map[node.WorkloadID]loan{}},
		had: Lending{Work: map[node.WorkloadID]loan{"web": {At: future, Felt: future, Savings: 1000}}}}
	x.use.Workload = map[node.WorkloadID]unit.MilliCPU{"web": 0}
	x.snap.At = time.Unix(1000, 0)
	base := node.Limit(unit.CPUs(1))
	x.lend(x.Config, &node.Workload{ID: "web", Cgroup: "ls/web"}, base, base.Quota)
	if l := x.next.Work["web"]; l.Felt.After(x.snap.At) || l.Savings != 1000 {
		t.Errorf("after the clock was set back: %+v", l)
	}
}
