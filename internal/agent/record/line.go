package record

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// format lists the fields of a line and the kinds of knobs, below the number of
// this version of them. A test compares the list with the types. With -update it
// writes the new list with the next number, so no change keeps the old number.
//
//go:embed format.txt
var format string

// version is the version of the format of lines. A new field needs a new
// version: a program that does not know the field would decide differently in a
// replay.
var version = versionOf(format)

// versionOf returns the number in the first line of a format.
func versionOf(format string) int {
	var v int
	if _, err := fmt.Sscanf(format, "version %d\n", &v); err != nil || v < 1 {
		panic(fmt.Sprintf("format.txt begins with %.20q, want a version from 1: %v", format, err))
	}
	return v
}

// A line is the JSON form of one tick in a record. A key line has a State and
// contains the whole tick. Every other line contains only the differences from
// the previous line, so the line of a quiet tick is short.
type line struct {
	Version  int            `json:"version,omitempty"` // only in key lines
	Tick     int            `json:"tick"`              // number of the tick since the recorder was opened, from 1
	At       time.Time      `json:"at"`
	Begun    time.Time      `json:"begun,omitzero"`
	Took     durations      `json:"took"`
	Events   []tick.Event   `json:"events,omitempty"` // all events of this tick
	State    *policy.State  `json:"state,omitempty"`
	Config   *policy.Config `json:"config,omitempty"`
	MaxSteps *int           `json:"max_steps,omitempty"`
	// Observed is that of Tick.
	Observed    bool `json:"observed,omitempty"`
	SLOViolated bool `json:"slo_violated,omitempty"` // the snapshot was taken because a service waited
	// Rest holds the parts of the snapshot that have no field of their own in
	// the line.
	Rest  *node.Snapshot             `json:"rest,omitempty"`
	Usage *node.Usage                `json:"usage,omitempty"`
	Busy  map[unit.CPU]time.Duration `json:"busy,omitempty"`
	Ran   runTimes                   `json:"ran,omitzero"` // growth of Busy; nil: Busy is complete
	// LSOn is the run time of latency-sensitive work on each CPU.
	LSOn  map[unit.CPU]time.Duration `json:"ls_on,omitempty"`
	LSRan runTimes                   `json:"ls_ran,omitzero"` // growth of LSOn; nil: LSOn is complete
	// Waits lists how long each workload waited for each runner.
	Waits  []node.Wait `json:"waits,omitempty"`
	Waited waitGrowth  `json:"waited,omitzero"` // growth of Waits; nil: Waits is complete
	// Gone lists workloads that left the node. Come lists workloads that are new
	// or whose description changed. Used lists workloads of which only the
	// resource usage changed. Its keys are indexes in the list of workloads after
	// these changes.
	Gone   []node.WorkloadID `json:"gone,omitempty"`
	Come   []node.Workload   `json:"come,omitempty"`
	Used   map[int]useLine   `json:"used,omitempty"`
	Now    []knobLine        `json:"now,omitempty"`
	Before []knobLine        `json:"before,omitempty"`
	Wants  []wantLine        `json:"wants,omitempty"`
	Done   []doneLine        `json:"done,omitempty"` // all steps of this tick
}

// A useLine is the JSON form of one workload's resource usage.
type useLine struct {
	node.Usage
	Ran     runTimes      `json:"ran,omitzero"`     // growth of PerCPU; nil: PerCPU is complete
	Counted counterGrowth `json:"counted,omitzero"` // growth of Delay.Counts; nil: Counts is complete
}

// durations lists the durations of the parts of a tick.
type durations struct {
	Sense  time.Duration `json:"sense_ns"`
	Decide time.Duration `json:"decide_ns"`
	Act    time.Duration `json:"act_ns"`
}

// A knobLine is the new value of a knob. Gone means that the knob no longer has
// a value.
type knobLine struct {
	node.Knob
	Value string `json:"value"`
	Gone  bool   `json:"gone,omitempty"`
}

// A wantLine is the new want for a knob. Gone means that the want ended. With
// Alike, the line changes several wants: all that were equal to the want for
// this knob in the previous line, except for the cgroup.
type wantLine struct {
	node.Knob
	Intent plan.Intent `json:"intent,omitempty"`
	Value  string      `json:"value,omitempty"` // for the intents with a value: see hasValue
	Owner  plan.Owner  `json:"owner,omitempty"`
	Reason string      `json:"reason,omitempty"`
	BE     bool        `json:"be,omitempty"`
	Gone   bool        `json:"gone,omitempty"`
	Alike  bool        `json:"alike,omitempty"`
}

// A doneLine is the JSON form of a step with its result.
type doneLine struct {
	node.Knob
	From    string     `json:"from"`
	To      string     `json:"to"`
	Owner   plan.Owner `json:"owner"`
	Reason  string     `json:"reason,omitempty"`
	Release bool       `json:"release,omitempty"`
	BE      bool       `json:"be,omitempty"`
	Error   string     `json:"error,omitempty"`
}

// unknown stands for a value that could not be read. No real value has this
// text.
const unknown = "?"

func textOf(v node.Value) string {
	if v == nil {
		return unknown
	}
	return v.String()
}

func valueOf(f node.File, text string) (node.Value, error) {
	if text == unknown {
		return nil, nil
	}
	return node.ParseValue(f, text)
}

// hasValue reports whether a want with this intent has a value.
func hasValue(i plan.Intent) bool { return i == plan.Set || i == plan.Pause }

func lineOfWant(w plan.Want) wantLine {
	l := wantLine{Knob: w.Knob, Intent: w.Intent, Owner: w.Owner, Reason: w.Reason, BE: w.BE}
	if hasValue(w.Intent) {
		l.Value = textOf(w.Value)
	}
	return l
}

func (l wantLine) want() (plan.Want, error) {
	w := plan.Want{Knob: l.Knob, Intent: l.Intent, Owner: l.Owner, Reason: l.Reason, BE: l.BE}
	if !hasValue(l.Intent) {
		return w, nil
	}
	var err error
	if w.Value, err = valueOf(l.File, l.Value); err != nil {
		return w, fmt.Errorf("want on %v: %w", l.Knob, err)
	}
	return w, nil
}

func lineOfStep(s plan.Step) doneLine {
	return doneLine{
		Knob: s.Knob, From: textOf(s.From), To: textOf(s.To),
		Owner: s.Owner, Reason: s.Reason, Release: s.Release, BE: s.BE,
	}
}

func lineOfOutcome(o tick.Outcome) doneLine {
	l := lineOfStep(o.Step)
	if o.Err != nil {
		l.Error = cmp.Or(o.Err.Error(), "unnamed")
	}
	return l
}

func (l doneLine) outcome() (tick.Outcome, error) {
	s := plan.Step{Knob: l.Knob, Owner: l.Owner, Reason: l.Reason, Release: l.Release, BE: l.BE}
	var bad [2]error
	s.From, bad[0] = valueOf(l.File, l.From)
	s.To, bad[1] = valueOf(l.File, l.To)
	if err := errors.Join(bad[:]...); err != nil {
		return tick.Outcome{}, fmt.Errorf("step on %v: %w", l.Knob, err)
	}
	o := tick.Outcome{Step: s}
	if l.Error != "" {
		o.Err = errors.New(l.Error)
	}
	return o, nil
}
