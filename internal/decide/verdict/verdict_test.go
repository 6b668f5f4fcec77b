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
