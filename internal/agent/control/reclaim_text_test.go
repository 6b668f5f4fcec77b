package control

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/reclaim"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAnExplanationShowsTheReclaim explains batch work from which memory is reclaimed,
// and a service, from which none is.
func TestAnExplanationShowsTheReclaim(t *testing.T) {
	const mib = unit.Bytes(1 << 20)
	of := measuredTick(time.Second, 800)
	of.Snapshot.Workloads[0].Usage.Reclaim = node.Reclaim{Asked: 24 * mib, Got: 20 * mib, Errno: int(syscall.EPERM)}
	of.Reclaim = reclaim.State{Lacks: 300 * mib, Work: map[node.WorkloadID]*reclaim.Work{"batch.slice/job.service": {
		Step: 4 * mib, Hold: reclaim.Resting, Last: reclaim.Judgement{Outcome: reclaim.Refaulted, Asked: 8 * mib, Got: 8 * mib, Stalled: 12 * time.Millisecond, Over: 5 * time.Second, Refaulted: 6 * mib},
	}}}
	l := NewLedger("v1")
	l.Observe(of, nil)
	e, err := l.ExplainWorkload("job.service")
	if err != nil {
		t.Fatal(err)
	}
	const want = `  reclaim    asked for 24.0Mi, got 20.0Mi; last 8.0Mi of 8.0Mi: it read too much back (waited 12ms of 5s, read back 6.0Mi): operation not permitted
             next 4.0Mi; the node lacks 300Mi of free memory; now none: it rests after a step that took too much
`
	if got := e.String(); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
	if e, err = l.ExplainWorkload("web.service"); err != nil || e.Reclaim != nil {
		t.Errorf("a service has %+v, %v", e.Reclaim, err)
	}
}

// TestEachReasonOfTheReclaimHasItsWords checks the words of all outcomes and holds.
func TestEachReasonOfTheReclaimHasItsWords(t *testing.T) {
	for _, o := range []reclaim.Outcome{reclaim.Unnoticed, reclaim.Stalled, reclaim.Refaulted, reclaim.Little, reclaim.Failed} {
		if outcomeTexts[o] == "" {
			t.Errorf("the outcome %q has no words", o)
		}
	}
	for _, h := range []reclaim.Hold{reclaim.Enough, reclaim.NoService, reclaim.NotHere, reclaim.Unknown, reclaim.Stale, reclaim.Pending, reclaim.Resting, reclaim.Protected, reclaim.Mixed, reclaim.Ending, reclaim.Rate} {
		if holdTexts[h] == "" {
			t.Errorf("the reason %q has no words", h)
		}
	}
}
