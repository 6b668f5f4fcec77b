// Package tick is the record of one tick of the loop: what it saw, what it
// wanted, what it did and what failed. Every view of the agent (dry run,
// report, log) reads this value and nothing else.
package tick

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// A Tick is one tick of the loop.
type Tick struct {
	// Begun is when the tick began, by the clock of Event.At.
	Begun time.Time
	// Events are why it did not wait for its period; nil if it did.
	Events   []Event
	Snapshot node.Snapshot
	Wants    []plan.Want
	// Missed are the workloads that miss their objective, and how.
	Missed map[node.WorkloadID]string
	// Batch is what batch work may count on after it.
	Batch node.Batch
	// Selection is which means isolates on the CPU after it, and Isolation what
	// the means have done until then.
	Selection node.Selection
	Isolation node.IsolationStatus
	Done      []Outcome
	// Sense, Decide and Act are the wall time of each part: the last write
	// was over at Begun plus all three.
	Sense, Decide, Act time.Duration
}

// Ended is when the last write of the tick was over.
func (t Tick) Ended() time.Time { return t.Begun.Add(t.Sense + t.Decide + t.Act) }

// An Outcome is a step and how it went; Err is nil if it was applied.
type Outcome struct {
	Step plan.Step
	Err  error
}

// String prints the steps of the tick, one line each, as golden files and
// dry runs show them.
func (t Tick) String() string {
	var b strings.Builder
	for _, o := range t.Done {
		fmt.Fprintln(&b, o.Step)
		if o.Err != nil {
			fmt.Fprintf(&b, "  failed: %v\n", o.Err)
		}
	}
	return b.String()
}
