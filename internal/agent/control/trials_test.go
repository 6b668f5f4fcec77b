package control

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/suppresscost"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
)

// TestExplainSaysWhatATrialFound checks the explanations of the isolation and
// of a service.
func TestExplainSaysWhatATrialFound(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := &Ledger{}
	l.last = tick.Tick{
		Snapshot:  node.Snapshot{At: at, Workloads: []node.Workload{{ID: "shop/web-7d4b9c6f5d-x2k8p", Class: node.LS, Cgroup: "a"}, {ID: "shop/db-0", Class: node.LS, Cgroup: "b"}}},
		Selection: node.Selection{Mechanism: node.MechanismIdle, Since: at.Add(-time.Hour), Why: "a trial kept it"},
		Trials: trial.Status{Kept: node.MechanismIdle, Since: at.Add(-time.Hour), Why: "siblings was tried: worse", Results: []trial.Result{
			{Candidate: node.MechanismIdle, Finding: trial.Kept, Why: "the services wait less with it", Ended: at.Add(-time.Hour), Pairs: 8, Ratio: 0.7, Low: 0.6, High: 0.8,
				Without: 30 * time.Microsecond, With: 21 * time.Microsecond,
				Services: []trial.Service{{Name: "shop/web", Pairs: 8, Without: 30 * time.Microsecond, With: 21 * time.Microsecond, HourWithout: 3 * time.Second, HourWith: 2100 * time.Millisecond}}},
			{Candidate: node.MechanismSiblings, Against: node.MechanismIdle, Finding: trial.Worse, Ended: at, Pairs: 16,
				Services: []trial.Service{{Name: "shop/web", Pairs: 16, With: 1, HourWithout: 251305825116, HourWith: 377611192645}}},
		}},
	}
	for name, want := range map[string][]string{
		"isolation": {"beyond trials  cpu.idle, kept by a trial, since 2026-03-01 11:00:00", "trials         siblings was tried: worse",
			"0.70 (0.60 to 0.80)", "30µs", "21µs", "shop/web", "3s an hour without, 2.1s with", "siblings"},
		"shop/web-7d4b9c6f5d-x2k8p": {"cpu.idle saves it 900ms of waiting for a CPU an hour: 2.1s instead of 3s (trial of 8 pairs",
			"siblings would cost it 2m6s of waiting for a CPU an hour: 6m18s instead of 4m11s", "it is not used"},
	} {
		e, err := l.ExplainWorkload(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if text := e.String(); !strings.Contains(text, part) {
				t.Errorf("%s lacks %q:\n%s", name, part, text)
			}
		}
	}
	e, err := l.ExplainWorkload("shop/db-0")
	if err != nil || len(e.Effects) > 0 {
		t.Errorf("a service that was in no trial: %+v, %v", e.Effects, err)
	}
}

// TestTheThresholdSaysItsPrice checks that an owner sees the cost of the
// threshold wherever slow batch work may be explained.
func TestTheThresholdSaysItsPrice(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	bound := node.Knob{Cgroup: "be", File: node.FileCPUMax}
	l := &Ledger{knobs: map[node.Knob]*account{bound: {want: plan.Want{Knob: bound, Intent: plan.Set, BE: true, Value: node.Limit(1600)}}}}
	l.last = tick.Tick{Snapshot: node.Snapshot{At: at, Workloads: []node.Workload{
		{ID: "web", Class: node.LS, Cgroup: "a"}, {ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"},
	}}}
	const cost = "has withheld up to 500m from BE in the mean of 2h0m0s"
	says := func() map[string]bool {
		found := map[string]bool{"status": strings.Contains(l.Status().String(), cost)}
		for _, name := range []string{"isolation", "job", "web"} {
			e, err := l.ExplainWorkload(name)
			if err != nil {
				t.Fatal(err)
			}
			found[name] = strings.Contains(e.String(), cost)
		}
		e, err := l.ExplainKnob(bound)
		if err != nil {
			t.Fatal(err)
		}
		found["the bound"] = strings.Contains(e.String(), cost)
		return found
	}
	for page, is := range says() {
		if is {
			t.Errorf("%s states a price without a threshold", page)
		}
	}
	l.last.Watermark = suppresscost.Watermark{Percent: 65, Since: at.Add(-2 * time.Hour), Counted: 2 * time.Hour, Reached: time.Hour, Withheld: time.Hour}
	for page, is := range says() {
		if is != (page != "web") {
			t.Errorf("%s states the price: %v", page, is)
		}
	}
}
