// Package memory is the record of the memory experiment, a service beside batch
// work that is greedy for memory: what was asked for and counted, what it
// shows, and how that is presented.
package memory

import (
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Kind is the kind of the experiment.
const Kind = "memory"

// A Experiment is the configuration of an experiment and its machine:
// experiment.json.
type Experiment struct {
	report.Experiment
	// Memory is how memory is divided.
	Memory Setup `json:"memory"`
}

// A Run is one mode in one block.
type Run struct {
	report.Run
	Memory Use `json:"memory"`
}

// A ModeResult is the result of one mode.
type ModeResult struct {
	report.ModeResult
	Memory Summary `json:"memory"`
}

// A Result is the result of an experiment: result.json.
type Result = report.ResultOf[Experiment, ModeResult]

// A remembered experiment is one with the memory use of its runs, by their
// index.
type remembered struct {
	experiment Experiment
	uses       map[int]Use
	summaries  map[report.Mode]Summary // filled by the analysis
}

// Analyse turns the runs of a memory experiment into its findings.
func Analyse(e Experiment, runs []Run) report.Analysis {
	m := remembered{e, map[int]Use{}, map[report.Mode]Summary{}}
	for _, r := range runs {
		m.uses[r.Index] = r.Memory
	}
	a := report.Analyse(e.Experiment, report.Commons(runs), m.study())
	for mode := range a.Base.Modes {
		m.summaries[mode] = m.summary(a.Evidence(), mode)
	}
	return a.WithResult(report.Extend(a.Base, e, func(mode report.Mode, r report.ModeResult) ModeResult {
		return ModeResult{r, m.summaries[mode]}
	}))
}

// Open loads and analyses the memory experiment in dir.
func Open(dir string) (report.Findings, error) {
	e, runs, err := report.Load[Experiment, Run](dir)
	if err != nil {
		return nil, err
	}
	return Analyse(e, runs), nil
}

// A Setup is how memory is divided in the memory experiment. Sizes are
// in bytes.
type Setup struct {
	Set       unit.Bytes `json:"set_bytes"` // the files that the service reads at random
	Pages     int        `json:"pages"`     // it is divided into
	PageBytes int        `json:"page_bytes"`
	Parent    unit.Bytes `json:"parent_bytes"`   // the limit of both sides together
	HogFile   unit.Bytes `json:"be_file_bytes"`  // the file that the batch work reads again and again
	HogHeld   unit.Bytes `json:"be_anon_bytes"`  // the anonymous memory of the batch work
	Request   unit.Bytes `json:"ls_request"`     // the memory request in the service's rule
	HogLimit  unit.Bytes `json:"be_limit_bytes"` // the limit of the batch work's rule
	// The shares that mode tenond asks for; 0: none.
	MinPercent        int `json:"ls_min_percent"`
	LowPercent        int `json:"ls_low_percent"`
	ThrottlingPercent int `json:"be_throttling_percent"`
}

// A Use is the use of memory in the measured part of a run.
type Use struct {
	// LSRefaults are pages of the service that came back soon after they had
	// been reclaimed, and LSMajorFaults the faults that waited for a device.
	LSRefaults    int64      `json:"ls_refaults"`
	LSMajorFaults int64      `json:"ls_major_faults"`
	BERefaults    int64      `json:"be_refaults"`
	LSHeld        unit.Bytes `json:"ls_file_bytes"` // page cache of the service, mean
	BEHeld        unit.Bytes `json:"be_held_bytes"` // page cache and memory of the batch work, mean
	BEBytes       int64      `json:"be_bytes_processed"`
	Readings      []Held     `json:"course,omitempty"`
}

// Held is how much memory each side held at a moment.
type Held struct {
	At     time.Duration `json:"at_ns"` // since the run's measured part began
	LS     unit.Bytes    `json:"ls_file_bytes"`
	BEFile unit.Bytes    `json:"be_file_bytes"`
	BEAnon unit.Bytes    `json:"be_anon_bytes"`
}

// Metrics of the memory experiment.

func (m remembered) refaults(r report.Run) float64 {
	return float64(m.uses[r.Index].LSRefaults) / r.Length.Seconds()
}

func (m remembered) majorFaults(r report.Run) float64 {
	return float64(m.uses[r.Index].LSMajorFaults) / r.Length.Seconds()
}

func (m remembered) processed(r report.Run) float64 {
	return report.Positive(float64(m.uses[r.Index].BEBytes) / (1 << 20) / r.Length.Seconds())
}

// held is the share of the working set that is in memory.
func (m remembered) held(r report.Run) float64 {
	set := m.experiment.Memory.Set
	return report.Known(float64(m.uses[r.Index].LSHeld)/float64(set), set > 0)
}
