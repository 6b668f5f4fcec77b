// Package record is the flight recorder, which keeps the last ticks of the loop
// for a replay. The ticks are in a ring of files of bounded size. Each tick is
// one JSON line: its inputs, decisions and writes. A replay makes the same
// decisions again from this record. The package also writes the audit log,
// which has one line for each write.
//
// The ring is in files on tmpfs, not in the memory of the agent. So it can be
// read without the agent, and it survives a crash of the agent, when it is
// needed most.
package record

import (
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
)

// A Tick is one tick of the loop, with the configuration and the state that its
// decisions depend on.
type Tick struct {
	tick.Tick
	Config policy.Config
	// Before is the state of the policies when the tick began.
	Before policy.State
	// MaxSteps is the maximum number of writes of the tick. 0 means no maximum.
	MaxSteps int
	// Observed means that no step was performed: the knobs of the snapshot are virtual.
	Observed bool
}

// decide makes the decisions of the tick again, from the given configuration
// and state of the policies.
func (t Tick) decide(config policy.Config, st policy.State) (policy.State, []plan.Want, []plan.Step) {
	next, wants := policy.Decide(config, st, t.Snapshot)
	return next, wants, plan.Bound(plan.Diff(t.Snapshot.Knobs, wants), t.MaxSteps)
}
