// Package reaction holds the records, the analysis and the presentation of the
// reaction experiment. The experiment measures how long tenond takes to answer
// a step of load.
package reaction

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Kind is the kind of the experiment.
const Kind = "reaction"

// An Experiment describes a reaction experiment and its machine
// (experiment.json).
type Experiment struct {
	Schema      int                           `json:"schema"` // 1
	Kind        string                        `json:"kind"`   // reaction
	Started     time.Time                     `json:"started"`
	Command     []string                      `json:"command"`
	Version     string                        `json:"tenon_version"`
	Modes       []report.Mode                 `json:"modes"`
	Blocks      int                           `json:"blocks"`
	Steps       map[report.Mode]int           `json:"steps"`    // of all blocks together
	Lengths     map[report.Mode]time.Duration `json:"steps_ns"` // length of a step
	LeastPause  time.Duration                 `json:"least_pause_ns"`
	MostPause   time.Duration                 `json:"most_pause_ns"`
	Seed        uint64                        `json:"seed"`
	TestedCPUs  unit.CPUSet                   `json:"tested_cpus"`
	ClientCPUs  unit.CPUSet                   `json:"client_cpus"` // CPUs of tenond and of the lab
	CyclePeriod time.Duration                 `json:"cycle_period_ns"`
	CycleWork   time.Duration                 `json:"cycle_work_ns"`
	Threshold   int                           `json:"suppress_threshold_percent"` // in percent of all CPUs
	Objective   time.Duration                 `json:"objective_ns"`               // the longest wait that the service's rule accepts; 0: no objective
	Tenond      map[report.Mode]string        `json:"tenond"`                     // command line and configuration of tenond
	Machine     report.Machine                `json:"machine"`
	Caveats     []string                      `json:"caveats,omitempty"`
	Ended       report.End                    `json:"ended,omitempty"`
}

// EndedBy returns the record after the end of the experiment.
func (e Experiment) EndedBy(end report.End) any {
	e.Ended = end
	return e
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

// Create creates the directory of a reaction experiment.
func Create(dir string, e Experiment) error {
	e.Schema, e.Kind = report.Schema, Kind
	if err := archive.MakeFolder(dir, "."); err != nil {
		return err
	}
	return report.WriteJSON(filepath.Join(dir, report.ExperimentFile), e)
}

// AddSteps appends steps to steps.jsonl.
func AddSteps(dir string, steps []Step) error {
	f, err := archive.OpenToAppend(filepath.Join(dir, stepsFile))
	if err != nil {
		return fmt.Errorf("save the steps: %w", err)
	}
	b := bufio.NewWriter(f)
	lines := json.NewEncoder(b)
	for _, s := range steps {
		if err = lines.Encode(s); err != nil {
			break
		}
	}
	if err := errors.Join(err, b.Flush(), f.Close()); err != nil {
		return fmt.Errorf("save the steps: %w", err)
	}
	return nil
}

// Load reads a reaction experiment and its steps. An experiment without a
// complete step is an error. If the experiment was killed, the last line may be
// incomplete, and Load ignores it.
func Load(dir string) (Experiment, []Step, error) {
	var e Experiment
	raw, data, err := archive.OpenExperiment(dir)
	if err != nil {
		return e, nil, err
	}
	switch err := json.Unmarshal(data, &e); {
	case err != nil:
		return e, nil, fmt.Errorf("load %s: %w", filepath.Join(dir, report.ExperimentFile), err)
	case e.Schema != report.Schema || e.Kind != Kind:
		return e, nil, fmt.Errorf("load %s: schema %d, kind %.80q: want schema %d, kind %s", filepath.Join(dir, report.ExperimentFile), e.Schema, e.Kind, report.Schema, Kind)
	}
	f, err := raw.Open(stepsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil, archive.CheckData(raw, dir, stepsFile, 0)
	}
	if err != nil {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	defer f.Close()
	steps, err := parseSteps(f)
	if err != nil {
		return e, steps, fmt.Errorf("load %s: %w", filepath.Join(dir, stepsFile), err)
	}
	return e, steps, archive.CheckData(raw, dir, stepsFile, len(steps))
}

func parseSteps(from io.Reader) ([]Step, error) {
	var steps []Step
	r := bufio.NewReader(from)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return steps, nil // the rest is an incomplete line
		}
		if err != nil {
			return steps, err
		}
		var s Step
		if err := json.Unmarshal(line, &s); err != nil {
			return steps, fmt.Errorf("line %d: %w", n, err)
		}
		if s.Length <= 0 || len(s.Due) != len(s.Delays) || s.Mode == "" {
			return steps, fmt.Errorf("line %d: mode %.80q, length %v, %d cycles with %d delays: want a mode, a length, and a delay for each cycle", n, s.Mode, s.Length, len(s.Due), len(s.Delays))
		}
		steps = append(steps, s)
	}
}

// Open loads and analyses the reaction experiment in dir.
func Open(dir string) (report.Findings, error) {
	e, steps, err := Load(dir)
	if err != nil {
		return nil, err
	}
	return findings{Analyse(e, steps), steps}, nil
}

// findings are the result and the steps of an experiment.
type findings struct {
	result Result
	steps  []Step
}

// Result returns the content of result.json.
func (f findings) Result() any                  { return f.result }
func (f findings) WriteTable(w io.Writer) error { return writeTable(w, f.result) }
func (f findings) WritePage(w io.Writer) error {
	return writePage(w, f.result, f.steps)
}
