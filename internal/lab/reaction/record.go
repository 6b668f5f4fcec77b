// Package reaction holds the records, the analysis and the presentation of the
// reaction experiment. The experiment measures how long tenond takes to answer
// a step of load.
package reaction

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Kind is the kind of the experiment.
const Kind = "reaction"

// An Experiment describes a reaction experiment and its machine
// (experiment.json).
type Experiment struct {
	report.Header                               // its client CPUs are those of tenond and of the lab
	Steps         map[report.Mode]int           `json:"steps"`    // of all blocks together
	Lengths       map[report.Mode]time.Duration `json:"steps_ns"` // length of a step
	LeastPause    time.Duration                 `json:"least_pause_ns"`
	MostPause     time.Duration                 `json:"most_pause_ns"`
	CyclePeriod   time.Duration                 `json:"cycle_period_ns"`
	CycleWork     time.Duration                 `json:"cycle_work_ns"`
	Threshold     int                           `json:"suppress_threshold_percent"` // in percent of all CPUs
	Objective     time.Duration                 `json:"objective_ns"`               // the longest wait that the service's rule accepts; 0: no objective
}

// A Step is one step of load: a line of steps.jsonl. Its times are in ns since
// the beginning of the step. A step begins when its first cycle is due.
type Step struct {
	Index  int           `json:"index"` // in the experiment, from 1
	Block  int           `json:"block"`
	Mode   report.Mode   `json:"mode"`
	Began  time.Time     `json:"began"`
	Length time.Duration `json:"length_ns"`
	Void   []string      `json:"void,omitempty"`
	// Quota is the CPU bound of the batch work at the beginning of the step, in
	// thousandths of a CPU. It is 0 if the bound is not known.
	Quota unit.MilliCPU `json:"be_quota_mcpu"`
	// Events are the kernel events that tenond received during the step. Ticks
	// are the ticks of tenond that ended within the step.
	Events []StepEvent `json:"events,omitempty"`
	Ticks  []StepTick  `json:"turns,omitempty"`
	// Due and Delays describe the service's cycles, in µs. Due is the time at
	// which a cycle is due. Delays is the time from Due to the end of the
	// cycle, minus the CPU time that the cycle needs.
	Due    []int64 `json:"due_us"`
	Delays []int64 `json:"delays_us"`
	Undone int     `json:"undone"` // cycles that had not begun at the end of the step
}

// A StepEvent is one event.
type StepEvent struct {
	At   time.Duration `json:"at_ns"`
	Kind string        `json:"kind"`
	Text string        `json:"text,omitempty"`
}

// A StepTick is one tick of tenond that ended within the step.
type StepTick struct {
	Began time.Duration `json:"began_ns"`
	Ended time.Duration `json:"ended_ns"` // end of its last write
	// Woken is the time of the first kernel event of the tick. It is nil if no
	// kernel event started the tick.
	Woken    *time.Duration `json:"woken_ns,omitempty"`
	Writes   int            `json:"writes"`
	Narrowed bool           `json:"narrowed"` // the bound of the batch work became smaller
	Failed   int            `json:"failed,omitempty"`
}

const stepsFile = "steps.jsonl"

// AddSteps appends steps to steps.jsonl.
func AddSteps(dir string, steps []Step) error { return report.AddLines(dir, stepsFile, steps...) }

// Load reads a reaction experiment and its steps.
func Load(dir string) (Experiment, []Step, error) {
	return report.LoadLines[Experiment](dir, Kind, stepsFile, Step.check)
}

// check returns an error for a step that the analysis could not use.
func (s Step) check() error {
	if s.Length <= 0 || len(s.Due) != len(s.Delays) || s.Mode == "" {
		return fmt.Errorf("mode %.80q, length %v, %d cycles with %d delays: want a mode, a length, and a delay for each cycle", s.Mode, s.Length, len(s.Due), len(s.Delays))
	}
	return nil
}

// Open loads and analyses the reaction experiment in dir.
func Open(dir string) (report.Findings, error) {
	e, steps, err := Load(dir)
	if err != nil {
		return nil, err
	}
	return Analyse(e, steps), nil
}
