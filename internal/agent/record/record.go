// Package record is the flight recorder: all that each tick of the loop saw,
// wanted and did, one JSON line a tick, in a bounded ring of files, and the
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

// A Tick is one tick of the loop, with all else that its decisions depend on.
type Tick struct {
	tick.Tick
	Config policy.Config
	// Before is what the policies remembered when the tick began.
	Before policy.State
	// MaxSteps bounded the writes of the tick; 0: no bound.
	MaxSteps int
}

// decide decides the tick again: by config, from what st remembers.
func (t Tick) decide(config policy.Config, st policy.State) (policy.State, []plan.Want, []plan.Step) {
	next, wants := policy.Decide(config, st, t.Snapshot)
	return next, wants, plan.Bound(plan.Diff(t.Snapshot.Knobs, wants), t.MaxSteps)
}
