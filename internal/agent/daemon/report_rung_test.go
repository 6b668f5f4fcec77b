package daemon

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

func TestARungIsLoggedWhenItChangesAndEachFallOnce(t *testing.T) {
	r, take := logged()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.rung.seen = noon
	old := node.Fall{At: noon.Add(-time.Minute), Rung: node.RungSchedExt, Why: "of the tenond before"}
	one := turn(nil)
	one.Ladder = node.LadderStatus{Rung: node.RungSchedExt, Why: "the strongest that this node can carry", Falls: []node.Fall{old}}
	r.report(one, nil)
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "rung=sched_ext reason=\"the strongest") {
		t.Errorf("the first turn: %q", got)
	}
	r.report(one, nil)
	if got := take(); got != "" {
		t.Errorf("the same again: %q", got)
	}
	one.Ladder.Rung, one.Ladder.Why = node.RungIdle, "sched_ext fell"
	one.Ladder.Falls = append(one.Ladder.Falls, node.Fall{At: noon.Add(time.Second), Rung: node.RungSchedExt, Why: "runnable task stall"})
	for _, want := range []int{2, 0} {
		r.report(one, nil)
		got := take()
		if strings.Count(got, "\n") != want || want > 0 && (!strings.Contains(got, "level=WARN") || !strings.Contains(got, "runnable task stall") || strings.Contains(got, "of the tenond before")) {
			t.Errorf("a fall, %d lines: %q", want, got)
		}
	}
}
