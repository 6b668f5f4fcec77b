// Package tick holds the record of one tick of the loop: its snapshot, wants,
// steps and errors. Every view of the agent (dry run, report, log) reads only
// this value.
package tick

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/decide/reclaim"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/suppresscost"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
)

// A Tick is the record of one tick of the loop.
type Tick struct {
	// Begun is the start of the tick by the wall clock, as Event.At. Snapshot.At is
	// on a clock that nothing sets and that stops while the machine sleeps. So a
	// time that leaves the process, and that others compare with their clocks, is
	// Begun.
	Begun time.Time
	// Events are the reasons why the tick started before its period was over.
	// Events is nil if the tick started on time.
	Events   []Event
	Snapshot node.Snapshot
	Wants    []plan.Want
	// Objectives holds the verdict about each objective. It is nil if there is none.
	Objectives map[node.WorkloadID]slo.Judgement
	// Lasted says for how long each verdict about each objective was in force.
	Lasted map[node.WorkloadID]slo.Lasted
	// Baselines hold what may be suggested to services without an objective.
	Baselines slo.Baselines
	// BackOff is the part of its CPU, in thousandths, that BE loses because an
	// objective is or was missed.
	BackOff int64
	// Single holds the bounds of single BE workloads, for which a service waited, as
	// far as they are smaller than their own limits.
	Single map[node.WorkloadID]culprit.Bound
	// Misfits holds the workloads whose CPU limit does not fit them.
	Misfits map[node.WorkloadID]*misfit.Misfit
	// Reclaim holds the steps by which the kernel reclaims memory of BE workloads.
	Reclaim reclaim.State
	// Victims holds the BE workloads that Tenon is evicting.
	Victims map[node.WorkloadID]evict.Victim
	// Batch is the amount of CPU and memory that BE may request after this tick.
	Batch node.Batch
	// Promises say how much of that lasts for some hours. Promises is nil while batch
	// resources are off.
	Promises []promise.Promise
	// Outlook is what the history of the node says about room for batch work. It is nil
	// if there is no history, or if it was not read yet.
	Outlook *prospect.Outlook
	// Slices are the virtual workers of the node and the work in them.
	Slices []worker.Status
	// Held are the CPUs that workloads hold after this tick.
	Held hold.Held
	// Selection is the isolation mechanism in use after this tick. Isolation is
	// the status of all mechanisms.
	Selection node.Selection
	// Trials holds the findings of the trials of mechanisms on this node up to
	// now.
	Trials trial.Status
	// Watermark is the cost of the owner's threshold of CPU suppress for BE.
	Watermark suppresscost.Watermark
	Isolation node.IsolationStatus
	// Done holds the steps that were performed. It is empty if Shadow is not nil.
	Done []Outcome
	// Shadow is what an agent that only observes has decided, and did not do. It is nil
	// if the agent acts.
	Shadow *Shadow
	// Refused holds the knobs that have refused each write for some time, sorted.
	Refused []Refusal
	// Sense, Decide and Act are the durations of the three parts of the tick. The
	// last write ended at Begun plus the sum of the three.
	Sense, Decide, Act time.Duration
}

// A Shadow is a tick on virtual knobs (package shadow). The snapshot of the tick has
// the real ones.
type Shadow struct {
	// Knobs are the virtual knobs that the tick decided by.
	Knobs node.Knobs
	// Steps were performed on the virtual knobs alone.
	Steps []plan.Step
	// Total is the number of such steps, by policy, since the agent started.
	Total map[plan.Owner]int64
}

// Performed returns the tick as if the steps of its shadow had been performed. Without
// a shadow, that is the tick itself. The flight recorder keeps this form.
func (t Tick) Performed() Tick {
	if t.Shadow == nil {
		return t
	}
	t.Snapshot.Knobs = t.Shadow.Knobs
	for _, s := range t.Shadow.Steps {
		t.Done = append(t.Done, Outcome{Step: s})
	}
	t.Shadow = nil
	return t
}

// EndTime returns the time at which the last write of the tick ended.
func (t Tick) EndTime() time.Time { return t.Begun.Add(t.Sense + t.Decide + t.Act) }

// An Outcome is a step with its result. Err is nil if the step was applied.
type Outcome struct {
	Step plan.Step
	Err  error
}

// A Refusal is a knob that has its wanted value in no tick since a time, because
// each write fails.
type Refusal struct {
	Knob  node.Knob
	Since time.Time // on the clock of Tick.Begun
	// BE has the meaning of plan.Want.BE.
	BE bool
	// Err is the error of the last write.
	Err error
}

// String prints the refusal as one phrase. The error names the knob.
func (r Refusal) String() string {
	return fmt.Sprintf("%v (since %s)", r.Err, r.Since.Format(time.TimeOnly))
}

// String prints the steps of the tick, one on each line. Golden files and dry
// runs have this form.
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
