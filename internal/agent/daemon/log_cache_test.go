package daemon

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

func TestWhatCannotBeDividedIsLoggedOnce(t *testing.T) {
	r, take := loggedText()
	asks := func(intent plan.Intent, reason string) tick.Tick {
		return tick.Tick{Snapshot: node.Snapshot{At: time.Unix(1, 0)}, Wants: []plan.Want{
			{Intent: intent, Knob: node.Knob{ControlGroup: "BE", File: node.FileL3}, Owner: plan.OwnerCache, Reason: reason},
			{Intent: plan.Abstain, Knob: node.Knob{Cgroup: "be", File: node.FileCPUMax}, Owner: plan.OwnerSuppress, Reason: "no rate yet"},
		}}
	}
	r.tick(asks(plan.Abstain, "resctrl is not mounted"), nil)
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "resctrl:BE L3: resctrl is not mounted") || strings.Contains(got, "no rate") {
		t.Errorf("at first: %q", got)
	}
	r.tick(asks(plan.Abstain, "resctrl is not mounted"), nil)
	if got := take(); got != "" {
		t.Errorf("again: %q", got)
	}
	r.tick(asks(plan.Set, "BE may fill 3 of the 11 ways"), nil)
	if got := take(); !strings.Contains(got, "are divided") {
		t.Errorf("afterwards: %q", got)
	}
}
