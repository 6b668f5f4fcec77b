package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

func textOf(p Page) string { return p.Text("node-1", time.Time{}, time.Duration.String) }

// TestWaitsThatAreNotMeasuredAreNotShort has a node without BPF, which knows nothing of
// the waits of a service with slow requests.
func TestWaitsThatAreNotMeasuredAreNotShort(t *testing.T) {
	j := slo.Judgement{Verdict: slo.Missed, Cause: slo.NotWaiting, Requests: slo.RequestJudgement{Verdict: slo.Missed, Cause: slo.NotWaiting}}
	if text := textOf(Page{Judgement: j}); !strings.Contains(text, "Its threads did not wait for a CPU, or that is not measured here: its own work") {
		t.Error(text)
	}
	j.Waited = time.Millisecond
	if text := textOf(Page{Judgement: j}); !strings.Contains(text, "Its threads hardly waited for a CPU: its own work") {
		t.Error(text)
	}
}

// TestAPageSaysWhatTheSocketsDoNotShow has a service of which the source could not tell
// how long some of its requests took, and one whose source is switched off.
func TestAPageSaysWhatTheSocketsDoNotShow(t *testing.T) {
	want := node.RequestObjective{Source: node.SourceSocket}
	for text, r := range map[string]slo.RequestJudgement{
		"It is kept: p99 of 1500 requests is at most 2ms; the time of 1 % of all requests is not known.":                                           {Verdict: slo.Kept, Target: 4, Total: 1500, Unknown: 3, Tail: node.Some(2 * time.Millisecond)},
		"It is kept: p99 of 1500 requests is at most 2ms.":                                                                                         {Verdict: slo.Kept, Target: 4, Total: 1500, Tail: node.Some(2 * time.Millisecond)},
		"Whether it is kept is not known: 25 % of its requests overlap on a connection, so that the sockets do not show how long each took.":       {Verdict: slo.Undecided, Cause: slo.Overlapping, Total: 300, Unknown: 100},
		"Whether it is kept is not known: its requests are not measured (the administrator has switched this off, by signals.requests of tenond).": {Verdict: slo.Undecided, Cause: slo.NoSource, Trouble: node.TroubleOff},
	} {
		r.Want = want
		if got := textOf(Page{Judgement: slo.Judgement{Verdict: r.Verdict, Cause: r.Cause, Requests: r}}); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}

// TestAKeptObjectiveIsNoContradiction has a window of so few waits that some long ones
// count as chance. What is measured is then longer than the objective that is kept.
func TestAKeptObjectiveIsNoContradiction(t *testing.T) {
	j := slo.Judgement{Verdict: slo.Kept, Objective: 2 * time.Millisecond, Tail: 4200 * time.Microsecond}
	const want = "It is kept: 99 of 100 waits ended within 4.2ms, and so few were longer than 2ms that they count as chance (2 more than 1 of 100, or less)."
	if got := textOf(Page{Judgement: j}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, tail := range []time.Duration{time.Millisecond, 2100 * time.Microsecond} { // the second ends the bucket of the objective
		if j.Tail = tail; j.ByTolerance() {
			t.Errorf("a tail of %v needs no chance", tail)
		}
	}
}

// TestAPageSaysForHowLongThereWasNoVerdict has services that are decided always, mostly and
// hardly, and one that has only begun.
func TestAPageSaysForHowLongThereWasNoVerdict(t *testing.T) {
	const kept = "It is kept: 99 of 100 waits ended within 1ms."
	for text, l := range map[string]slo.Lasted{
		"":                                 {Undecided: 59 * time.Second},
		" In the last 1h0m0s: kept 100 %.": {Kept: time.Hour},
		" In the last 1h0m0s: kept 98.3 %, missed 1.3 %, undecided 0.3 %.": {Kept: 3540 * time.Second, Missed: 47 * time.Second, Undecided: 13 * time.Second},
		" In the last 2400h0m0s: kept 99.9 %, undecided below 0.1 %.":      {Kept: 2400*time.Hour - time.Second, Undecided: time.Second},
		" In the last 1m0s: undecided 100 %.":                              {Undecided: time.Minute},
	} {
		p := Page{Judgement: slo.Judgement{Verdict: slo.Kept, Objective: 2 * time.Millisecond, Tail: time.Millisecond}, Lasted: l}
		if got := textOf(p); got != kept+text {
			t.Errorf("%q, want %q", got, kept+text)
		}
	}
}

// TestBatchWorkIsNotLeftAloneWhileItIsBound has a service that waits for itself now. A
// bound for an earlier miss has not grown back yet, or another service needs one.
func TestBatchWorkIsNotLeftAloneWhileItIsBound(t *testing.T) {
	for _, cause := range slo.Causes {
		for name, p := range map[string]Page{
			"batch/hog alone gives way: it has at most 0.50 CPUs.":                 {Alone: []Alone{{"batch/hog", 500}}},
			"All best-effort work of node-1 has at most 1.50 CPUs by cpu.max now.": {All: ClassBound{Files: "cpu.max", May: 1500}},
			"Batch work is left alone.":                                            {},
		} {
			p.Judgement = slo.Judgement{Verdict: slo.Missed, Cause: cause, Objective: time.Millisecond}
			if cause == slo.BEMemory || cause == slo.Contention {
				name = strings.Replace(name, "Batch work is left alone.", "Batch work keeps its CPU.", 1)
			}
			gives := cause == slo.ForBE || cause == slo.UnknownRunner
			if text := textOf(p); !gives && !strings.Contains(text, name) || len(p.Alone)+len(p.All.Files) > 0 && strings.Contains(text, "left alone") {
				t.Errorf("%s: %s", cause, text)
			}
		}
	}
}

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

// TestAnObjectiveForRequestsMayBeTooShort has a service that answers too late without batch
// work as well.
func TestAnObjectiveForRequestsMayBeTooShort(t *testing.T) {
	r := slo.RequestJudgement{Verdict: slo.Missed, Target: 4, Quiet: slo.Quiet{Tail: 8 * time.Millisecond, Missed: true}}
	const text = " Without batch work, p99 was at most 8ms at best: this objective is too short for the node."
	if got := textOf(Page{Judgement: slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, Requests: r}}); !strings.HasSuffix(got, text) {
		t.Error(got)
	}
	for _, cause := range []slo.Cause{slo.OwnThreads, slo.OwnLimit, slo.OtherService} { // without it the node may keep the objective
		j := slo.Judgement{Verdict: slo.Missed, Cause: cause, Objective: time.Millisecond, Quiet: slo.Quiet{Tail: 8 * time.Millisecond}, Requests: r}
		if got := textOf(Page{Judgement: j}); strings.Contains(got, "too short") {
			t.Errorf("%s: %s", cause, got)
		}
		j.Cause, j.Requests = slo.System, slo.RequestJudgement{}
		if got := textOf(Page{Judgement: j}); !strings.Contains(got, "99 of 100 waits ended within 8ms at best: this objective is too short") {
			t.Error(got)
		}
	}
	r.Quiet.Missed = false
	if got := textOf(Page{Judgement: slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, Requests: r}}); strings.Contains(got, "Without batch work") {
		t.Error(got)
	}
}
