package verdict

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/slo"
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

// TestBatchWorkIsNotLeftAloneWhileItIsBound has a service that waits for itself now. A
// bound for an earlier miss has not grown back yet, or another service needs one.
func TestBatchWorkIsNotLeftAloneWhileItIsBound(t *testing.T) {
	for _, cause := range slo.Causes {
		for name, p := range map[string]Page{
			"batch/hog alone has at most 0.50 CPUs for it.":                        {Alone: []Alone{{"batch/hog", 500}}},
			"All best-effort work of node-1 has at most 1.50 CPUs by cpu.max now.": {All: ClassBound{Files: "cpu.max", May: 1500}},
			"Batch work is left alone.":                                            {},
		} {
			p.Judgement = slo.Judgement{Verdict: slo.Missed, Cause: cause, Objective: time.Millisecond}
			gives := cause == slo.ForBE || cause == slo.UnknownRunner
			if text := textOf(p); !gives && !strings.Contains(text, name) || len(p.Alone)+len(p.All.Files) > 0 && strings.Contains(text, "left alone") {
				t.Errorf("%s: %s", cause, text)
			}
		}
	}
}
