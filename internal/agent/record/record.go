// Package record is the flight recorder: all that each turn of the loop saw,
// wanted and did, one JSON line a turn, in a bounded ring of files, and the
// replay that decides the same again from it. Beside it stands the audit log:
// one line for each write.
//
// The ring is in files on tmpfs and not in memory: it is there when the agent
// has crashed, which is when it is wanted most, and it is read without one.
// Kernel memory holds it either way, but not the heap of the agent.
package record

import (
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
)

// A Turn is one turn of the loop, with all else that its decisions depend on.
type Turn struct {
	tick.Tick
	Config policy.Config
	// Before is what the policies remembered when the turn began.
	Before policy.State
	// MaxSteps bounded the writes of the turn; 0: no bound.
	MaxSteps int
}

// decide decides the turn again: by config, from what st remembers.
func (t Turn) decide(config policy.Config, st policy.State) (policy.State, []plan.Want, []plan.Step) {
	next, wants := policy.Decide(config, st, t.Snapshot)
	return next, wants, plan.Bound(plan.Diff(t.Snapshot.Knobs, wants), t.MaxSteps)
}
