package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/unit"
)

// The modes of the reaction experiment.
const (
	Events Mode = "events" // the kernel's events wake tenond
	Ticks  Mode = "tick"   // it turns once in a second, and nothing wakes it
	PSI    Mode = "psi"    // of the events, PSI triggers alone
	IdleBE Mode = "idle"   // with events, and the batch work idle in the kernel
)

// A Reaction is what was asked for in a reaction experiment and where it ran:
// its experiment.json.
type Reaction struct {
	Schema      int                    `json:"schema"` // 1
	Kind        string                 `json:"kind"`   // reaction
	Started     time.Time              `json:"started"`
	Command     []string               `json:"command"`
	Version     string                 `json:"tenon_version"`
	Modes       []Mode                 `json:"modes"`
	Blocks      int                    `json:"blocks"`
	Steps       map[Mode]int           `json:"steps"`    // of all blocks together
	Lengths     map[Mode]time.Duration `json:"steps_ns"` // of a step
	LeastPause  time.Duration          `json:"least_pause_ns"`
	MostPause   time.Duration          `json:"most_pause_ns"`
	Seed        uint64                 `json:"seed"`
	TestedCPUs  unit.CPUSet            `json:"tested_cpus"`
	ClientCPUs  unit.CPUSet            `json:"client_cpus"` // of tenond and of the lab
	CyclePeriod time.Duration          `json:"cycle_period_ns"`
	CycleWork   time.Duration          `json:"cycle_work_ns"`
	Threshold   int                    `json:"suppress_threshold_percent"` // of all CPUs
	Objective   time.Duration          `json:"objective_ns"`               // the longest wait that the service's rule accepts; 0: it names none
	Tenond      map[Mode]string        `json:"tenond"`                     // what it was started with and told
	Machine     Machine                `json:"machine"`
	Caveats     []string               `json:"caveats,omitempty"`
}

// A Step is one step of load: a line of steps.jsonl. Times in ns are since the
// step began, which is when its first cycle was due.
type Step struct {
	Index  int           `json:"index"` // in the experiment, from 1
	Block  int           `json:"block"`
	Mode   Mode          `json:"mode"`
	Began  time.Time     `json:"began"`
	Length time.Duration `json:"length_ns"`
	Void   []string      `json:"void,omitempty"`
	// Quota is the CPU that the batch work might use when the step began, in
	// thousandths; 0: not known.
	Quota unit.MilliCPU `json:"be_quota_mcpu"`
	// Events are those of the kernel's signals that tenond learned of during
	// the step, and Turns its turns.
	Events []StepEvent `json:"events,omitempty"`
	Turns  []StepTurn  `json:"turns,omitempty"`
	// Due and Delays are of the service's cycles in µs: when each was due, and
	// how much later than in its work's time after that it was over.
	Due    []int64 `json:"due_us"`
	Delays []int64 `json:"delays_us"`
	Undone int     `json:"undone"` // cycles that had not begun at the end
}

// A StepEvent is one event.
type StepEvent struct {
	At   time.Duration `json:"at_ns"`
	Kind string        `json:"kind"`
	Text string        `json:"text,omitempty"`
}

// A StepTurn is one turn of tenond that ended within the step.
type StepTurn struct {
	Began time.Duration `json:"began_ns"`
	Ended time.Duration `json:"ended_ns"` // its last write was over
	// Woken is when the first of the kernel's signals came that the turn
	// answers; nil: the clock began it, or something else.
	Woken    *time.Duration `json:"woken_ns,omitempty"`
	Writes   int            `json:"writes"`
	Narrowed bool           `json:"narrowed"` // a bound of the batch work became smaller
	Failed   int            `json:"failed,omitempty"`
}

const stepsFile = "steps.jsonl"

// CreateReaction makes the directory of a reaction experiment.
func CreateReaction(dir string, e Reaction) error {
	e.Schema, e.Kind = Schema, KindReaction
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the experiment: %w", err)
	}
	return writeJSON(filepath.Join(dir, experimentFile), e)
}

// AddSteps appends steps to steps.jsonl.
func AddSteps(dir string, steps []Step) error {
	f, err := os.OpenFile(filepath.Join(dir, stepsFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
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

// LoadReaction reads a reaction experiment and its steps. A last line that is
// not whole is left out: the experiment was killed there.
func LoadReaction(dir string) (Reaction, []Step, error) {
	var e Reaction
	data, err := os.ReadFile(filepath.Join(dir, experimentFile))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	switch {
	case err != nil:
		return e, nil, fmt.Errorf("load experiment: %w", err)
	case e.Schema != Schema || e.Kind != KindReaction:
		return e, nil, fmt.Errorf("load %s: schema %d, kind %q: want schema %d, kind %s", filepath.Join(dir, experimentFile), e.Schema, e.Kind, Schema, KindReaction)
	}
	f, err := os.Open(filepath.Join(dir, stepsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil, nil
	}
	if err != nil {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	defer f.Close()
	steps, err := parseSteps(f)
	if err != nil {
		return e, steps, fmt.Errorf("load %s: %w", f.Name(), err)
	}
	return e, steps, nil
}

func parseSteps(from io.Reader) ([]Step, error) {
	var steps []Step
	r := bufio.NewReader(from)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return steps, nil // what is left is no whole line
		}
		if err != nil {
			return steps, err
		}
		var s Step
		if err := json.Unmarshal(line, &s); err != nil {
			return steps, fmt.Errorf("line %d: %w", n, err)
		}
		if s.Length <= 0 || len(s.Due) != len(s.Delays) || s.Mode == "" {
			return steps, fmt.Errorf("line %d: mode %q, length %v, %d cycles with %d delays: want a mode, a length, and a delay for each cycle", n, s.Mode, s.Length, len(s.Due), len(s.Delays))
		}
		steps = append(steps, s)
	}
}

// BuildReaction analyses the experiment in dir, and writes result.json and
// report.html into it.
func BuildReaction(dir string) (ReactionResult, error) {
	return build(dir, LoadReaction, AnalyseReaction, WriteReactionHTML)
}

// Kind is the kind of the experiment in dir.
func Kind(dir string) (string, error) {
	var e struct {
		Kind string `json:"kind"`
	}
	data, err := os.ReadFile(filepath.Join(dir, experimentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("load experiment: %s has no %s; is it the directory of an experiment?", dir, experimentFile)
	}
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		return "", fmt.Errorf("load experiment: %w", err)
	}
	return e.Kind, nil
}
