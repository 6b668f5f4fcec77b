package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

func ending(v node.Run, err error) tick.Tick {
	k := node.Knob{Cgroup: "be/job", File: node.FileRun}
	t := tick.Tick{Snapshot: node.Snapshot{At: time.Unix(1, 0)}}
	if v == "" { // between two attempts
		t.Wants = []plan.Want{{Intent: plan.Abstain, Knob: k, Owner: plan.OwnerEvict}}
		return t
	}
	t.Done = []tick.Outcome{{Step: plan.Step{Knob: k, To: v, Owner: plan.OwnerEvict, Reason: "memory: short"}, Err: err}}
	return t
}

// TestTheEndOfWorkIsLogged checks the log after the end or the freezing of a
// workload. It must have a line with the reason, even with --log-level warn.
func TestTheEndOfWorkIsLogged(t *testing.T) {
	for v, want := range map[node.Run]string{
		node.Frozen: "level=WARN msg=\"best-effort work is frozen\"", node.Running: "level=WARN msg=\"best-effort work is let go on\"",
		node.AskedToEnd: "level=WARN msg=\"best-effort work is asked to end\"", node.Ended: "level=WARN msg=\"best-effort work is killed\"",
	} {
		r, take := loggedText()
		r.tick(ending(v, nil), nil)
		if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) || !strings.Contains(got, "memory: short") || !strings.Contains(got, "be/job") {
			t.Errorf("%v: %q", v, got)
		}
	}
}

// TestAVictimThatDoesNotDieIsReportedOnce checks that repeated attempts to end
// a workload do not repeat the line in the log.
func TestAVictimThatDoesNotDieIsReportedOnce(t *testing.T) {
	r, take := loggedText()
	stuck := errors.New("processes that do not die of SIGKILL")
	for range 20 {
		r.tick(ending(node.Ended, stuck), stuck)
		for range 3 {
			r.tick(ending("", nil), nil)
		}
	}
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "do not die") {
		t.Errorf("%q", got)
	}
	r.tick(tick.Tick{Snapshot: node.Snapshot{At: time.Unix(2, 0)}}, nil)
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "gone") {
		t.Errorf("when it is gone: %q", got)
	}
}
