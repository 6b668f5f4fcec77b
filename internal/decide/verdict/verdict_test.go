package verdict

import (
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// TestAPageHasTheBoundsOfItsService checks which bounds of a tick stand on the page of
// a service: those for it alone, and that of all BE work only while it gives way.
func TestAPageHasTheBoundsOfItsService(t *testing.T) {
	quota := node.Knob{Cgroup: "be", File: node.FileCPUMax}
	turn := tick.Tick{
		Objectives: map[node.WorkloadID]slo.Judgement{"web": {Verdict: slo.Undecided, Cause: slo.Unmeasured, Objective: time.Millisecond}, "db": {Verdict: slo.Kept}},
		Single:     map[node.WorkloadID]culprit.Bound{"b": {Victim: "web", May: 200}, "a": {Victim: "web", May: 100}, "c": {Victim: "db", May: 300}},
		Wants: []plan.Want{
			{Intent: plan.Set, Owner: plan.OwnerSuppress, Knob: quota, Value: node.Limit(750)},
			{Intent: plan.Set, Owner: plan.OwnerSuppress, Knob: node.Knob{Cgroup: "be2", File: node.FileCPUMax}, Value: node.Limit(250)},
			{Intent: plan.Abstain, Owner: plan.OwnerSuppress, Knob: node.Knob{Cgroup: "be", File: node.FileCPUs}, Reason: "no topology"},
			{Intent: plan.Set, Owner: plan.OwnerLimit, Knob: node.Knob{Cgroup: "be/a", File: node.FileCPUMax}, Value: node.Limit(100)},
		},
	}
	turn.Snapshot.Capabilities = node.Capabilities{node.FeatureBPF: {Verdict: node.No, Why: "no BTF"}, node.FeatureSchedStat: {Verdict: node.No, Why: "counts nothing"}}
	page, has := Of(turn, "web")
	if !has || !slices.Equal(page.Alone, []Alone{{"a", 100}, {"b", 200}}) || page.All != (ClassBound{}) || page.Unmeasured != "bpf.tracing: no BTF; schedstat: counts nothing" {
		t.Errorf("%+v", page)
	}
	turn.BackOff = 500
	if page, _ = Of(turn, "db"); page.All != (ClassBound{Files: "cpu.max", May: 1000, Reason: "no topology"}) || page.Unmeasured != "" || len(page.Alone) != 1 {
		t.Errorf("%+v", page)
	}
	if _, has := Of(turn, "a"); has {
		t.Error("a workload without an objective has a page")
	}
	if b := BoundOfClass(tick.Tick{}); b != (ClassBound{Reason: "there is no best-effort work"}) {
		t.Errorf("without BE: %+v", b)
	}
}

// TestBlameNamesTheCauseAndTheWork checks the few words in tenon status and top.
func TestBlameNamesTheCauseAndTheWork(t *testing.T) {
	p := Page{Judgement: slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, Waits: slo.Waits{Waited: time.Second, Runners: []slo.Runner{{ID: "batch/job", Cause: slo.ForBE, Time: 640 * time.Millisecond}}}}}
	if text := p.Blame(); text != "best-effort (batch/job 64 %)" {
		t.Error(text)
	}
	p.Judgement.Cause = slo.OwnLimit
	if text := p.Blame(); text != "own-limit" {
		t.Error(text)
	}
}
