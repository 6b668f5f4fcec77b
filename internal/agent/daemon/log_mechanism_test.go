package daemon

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

func TestAMechanismIsLoggedWhenItChangesAndEachFailureOnce(t *testing.T) {
	r, take := loggedText()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.mechanism.seen = noon
	old := node.Failure{At: noon.Add(-time.Minute), Mechanism: node.MechanismSchedExt, Why: "of the tenond before"}
	one := tickOnce(nil)
	one.Selection = node.Selection{Mechanism: node.MechanismSchedExt, Why: "the strongest that this node supports", Failures: []node.Failure{old}}
	r.tick(one, nil)
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "mechanism=sched_ext reason=\"the strongest") {
		t.Errorf("the first tick: %q", got)
	}
	r.tick(one, nil)
	if got := take(); got != "" {
		t.Errorf("the same again: %q", got)
	}
	one.Selection.Mechanism, one.Selection.Why = node.MechanismIdle, "sched_ext fell"
	one.Selection.Failures = append(one.Selection.Failures, node.Failure{At: noon.Add(time.Second), Mechanism: node.MechanismSchedExt, Why: "runnable task stall"})
	for _, want := range []int{2, 0} {
		r.tick(one, nil)
		got := take()
		if strings.Count(got, "\n") != want || want > 0 && (!strings.Contains(got, "level=WARN") || !strings.Contains(got, "runnable task stall") || strings.Contains(got, "of the tenond before")) {
			t.Errorf("a fall, %d lines: %q", want, got)
		}
	}
}
