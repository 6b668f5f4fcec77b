package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// anyLimits returns a node whose LS workloads have CPU limits. A limit comes
// from a rule, or was in the cgroup before Tenon. Some of the workloads are
// below a cgroup with a quota.
func anyLimits(rnd *rand.Rand, version int) (*scene, map[node.WorkloadID]node.CPUMax) {
	n := newScene(machine(1+rnd.IntN(16), 1, 1, 1), version)
	n.config.Burst = burst.Config{
		Policy:     []burst.Policy{burst.Save, burst.Borrow, burst.Both, burst.Both}[rnd.IntN(4)],
		CPUPercent: unit.Percent(1 + rnd.IntN(1000)), QuotaPercent: unit.Percent(100 + rnd.IntN(400)),
		PeriodSeconds: int64(rnd.IntN(20) - 5), PoolPercent: unit.Percent(rnd.IntN(101)),
	}
	bases := map[node.WorkloadID]node.CPUMax{}
	var most node.CPUMax
	for i := range 1 + rnd.IntN(5) {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint("w", i)), Class: []node.Class{node.LS, node.LS, node.LS, node.LSR, node.System}[rnd.IntN(5)], ContentionRoot: "up"}
		w.Cgroup = w.ContentionRoot.Join(string(w.ID))
		base := node.Limit(unit.MilliCPU(1 + rnd.IntN(5000)))
		if rnd.IntN(3) > 0 {
			w.CPULimit = node.Some(facts.MilliOf(base))
			base = node.Limit(facts.MilliOf(base))
		}
		n.add(w)
		if !w.CPULimit.Known() {
			base.Period = time.Duration(1+rnd.IntN(1000)) * time.Millisecond
			base.Burst = min(time.Duration(rnd.IntN(100))*time.Millisecond, base.Quota)
			n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}] = base
		}
		bases[w.ID] = base
		if most.Period == 0 || base.CompareWidth(most) > 0 {
			most = base
		}
	}
	if rnd.IntN(2) == 0 {
		up := node.CPUMax{Quota: most.Quota + time.Duration(rnd.IntN(300))*time.Millisecond, Period: most.Period}
		n.snap.Knobs.Now[node.Knob{Cgroup: "up", File: node.FileCPUMax}] = up
	}
	return n, bases
}

// TestBurstsStayInTheirBounds runs services with limits for some time. Each
// quota must be between the limit and QuotaPercent of it, and each burst at
// most its quota. No quota may grow while the shared CPUs are busy, and only LS
// may have bursts. The kernel must refuse nothing, and when the policy is
// disabled, everything must be restored.
func TestBurstsStayInTheirBounds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(41, 42))
	grown := 0
	for try := range 80 {
		n, bases := anyLimits(rnd, 1+try%2)
		knob := func(w node.Workload) node.CPUMax {
			return n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}].(node.CPUMax)
		}
		for turn := range 15 {
			p := n.anySpell(rnd)
			p.throttled = map[node.WorkloadID][2]int64{}
			for _, w := range n.snap.Workloads {
				if rnd.IntN(3) > 0 {
					p.throttled[w.ID] = [2]int64{int64(rnd.IntN(5)), int64(5 + rnd.IntN(5))}
				}
			}
			before := map[node.WorkloadID]node.CPUMax{}
			for _, w := range n.snap.Workloads {
				before[w.ID] = knob(w)
			}
			if rnd.IntN(8) == 0 {
				n.state = State{}
			}
			n.pass(p)
			n.checkWants(t)
			n.decide(t)
			b := n.config.Burst
			for _, w := range n.snap.Workloads {
				now, base := knob(w), bases[w.ID]
				what := fmt.Sprintf("try %d, tick %d, %+v: %s %s, which has %v of %v before %v", try, turn, b, w.Class, w.ID, now, base, before[w.ID])
				most := base.Quota * time.Duration(b.QuotaPercent) / 100
				switch {
				case now.Period != base.Period || now.Quota < base.Quota || now.Quota > most:
					t.Fatalf("%s: not from the limit to %d%% of it", what, b.QuotaPercent)
				case now.Burst > now.Quota || now.Burst > max(base.Quota*time.Duration(b.CPUPercent)/100, base.Burst):
					t.Fatalf("%s: more burst than can be", what)
				case (w.Class != node.LS || b.Policy == burst.Save) && now.Quota != base.Quota:
					t.Fatalf("%s: may not borrow", what)
				case (w.Class != node.LS || b.Policy == burst.Borrow) && now.Burst != base.Burst:
					t.Fatalf("%s: may not save up", what)
				case turn > 0 && n.state.Lending.Shared >= unit.MilliCPU(b.PoolPercent)*10 && now.Quota > before[w.ID].Quota:
					t.Fatalf("%s: grows, and the shared CPUs are %d‰ busy", what, n.state.Lending.Shared)
				case now.Quota > base.Quota:
					grown++
				}
			}
			if t.Failed() {
				t.Fatalf("try %d, tick %d", try, turn)
			}
		}
		n.config = Config{}
		n.pass(n.anySpell(rnd))
		n.decide(t)
		for _, w := range n.snap.Workloads {
			if now := knob(w); now != bases[w.ID] {
				t.Fatalf("try %d: %s has %v after the policy was switched off, want %v", try, w.ID, now, bases[w.ID])
			}
		}
	}
	if grown == 0 {
		t.Error("no workload has borrowed anything")
	}
}

// TestMissingCountersAreNoThrottling checks that a missing reading of a counter
// does not count as 0. After a reading of 0, the growth up to the next reading
// would look like throttling.
func TestMissingCountersAreNoThrottling(t *testing.T) {
	n := newScene(machine(4, 1, 1, 1), 2)
	n.config.Burst = burst.Config{Policy: burst.Borrow, CPUPercent: 1000, QuotaPercent: 300, PeriodSeconds: -1, PoolPercent: 50}
	n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls", CPULimit: node.Some(unit.CPUs(1))})
	n.ran["web"] = [2]int64{4000, 10000}
	for turn := range 6 {
		n.pass(spell{every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{"web": 1000}, unthrottled: turn%2 == 0})
		n.decide(t)
		if q, _ := n.snap.Knobs.Now[node.Knob{Cgroup: "ls/web", File: node.FileCPUMax}].(node.CPUMax); facts.MilliOf(q) > unit.CPUs(1) {
			t.Fatalf("tick %d: it borrows up to %v although it was never throttled", turn, facts.MilliOf(q))
		}
	}
}
