// Package memory holds the records, the analysis and the presentation of the
// memory experiment. In this experiment, a service runs beside batch work that
// needs much memory.
package memory

import (
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Kind is the kind of the experiment.
const Kind = "memory"

// An Experiment describes a memory experiment and its machine
// (experiment.json).
type Experiment struct {
	report.Experiment
	// Memory defines how memory is divided.
	Memory Setup `json:"memory"`
}

// A Run is the measurement of one mode in one block.
type Run struct {
	report.Run
	Memory Use `json:"memory"`
}

// A ModeResult is the result of one mode.
type ModeResult struct {
	report.ModeResult
	Memory Summary `json:"memory"`
}

// A Result is the result of an experiment (result.json).
type Result = report.ResultOf[Experiment, ModeResult]

// A memoryExperiment is an experiment with the memory use of its runs. The map
// uses has the index of the run as key.
type memoryExperiment struct {
	experiment Experiment
	uses       map[int]Use
	summaries  map[report.Mode]Summary // filled by the analysis
}

// Analyse turns the runs of a memory experiment into its findings.
func Analyse(e Experiment, runs []Run) report.Analysis {
	m := memoryExperiment{e, map[int]Use{}, map[report.Mode]Summary{}}
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

// A Setup defines how the memory experiment divides memory. Sizes are in bytes.
type Setup struct {
	Set       unit.Bytes `json:"set_bytes"` // the files that the service reads at random
	Pages     int        `json:"pages"`     // number of files
	PageBytes int        `json:"page_bytes"`
	Parent    unit.Bytes `json:"parent_bytes"`   // the limit of the service and the batch work together
	HogFile   unit.Bytes `json:"be_file_bytes"`  // the file that the batch work reads repeatedly
	HogHeld   unit.Bytes `json:"be_anon_bytes"`  // the anonymous memory of the batch work
	Request   unit.Bytes `json:"ls_request"`     // the memory request in the service's rule
	HogLimit  unit.Bytes `json:"be_limit_bytes"` // the limit of the batch work's rule
	// The percentages that the mode tenond configures. A percentage of 0 is not
	// configured.
	MinPercent        int `json:"ls_min_percent"`
	LowPercent        int `json:"ls_low_percent"`
	ThrottlingPercent int `json:"be_throttling_percent"`
}

// A Use is the use of memory in the measured part of a run.
type Use struct {
	// LSRefaults is the number of pages of the service that had to be read again
	// soon after the kernel had reclaimed them. LSMajorFaults is the number of
	// page faults that waited for a device.
	LSRefaults    int64      `json:"ls_refaults"`
	LSMajorFaults int64      `json:"ls_major_faults"`
	BERefaults    int64      `json:"be_refaults"`
	LSHeld        unit.Bytes `json:"ls_file_bytes"` // page cache of the service, mean
	BEHeld        unit.Bytes `json:"be_held_bytes"` // page cache and memory of the batch work, mean
	BEBytes       int64      `json:"be_bytes_processed"`
	Readings      []Held     `json:"course,omitempty"`
}

// Held is the memory of the service (LS) and of the batch work (BE) at one time.
type Held struct {
	At     time.Duration `json:"at_ns"` // since the measured part of the run began
	LS     unit.Bytes    `json:"ls_file_bytes"`
	BEFile unit.Bytes    `json:"be_file_bytes"`
	BEAnon unit.Bytes    `json:"be_anon_bytes"`
}

// The metrics of the memory experiment.

func (m memoryExperiment) refaults(r report.Run) float64 {
	return float64(m.uses[r.Index].LSRefaults) / r.Length.Seconds()
}

func (m memoryExperiment) majorFaults(r report.Run) float64 {
	return float64(m.uses[r.Index].LSMajorFaults) / r.Length.Seconds()
}

func (m memoryExperiment) processed(r report.Run) float64 {
	return report.Positive(float64(m.uses[r.Index].BEBytes) / (1 << 20) / r.Length.Seconds())
}

// residentMetric is the metric of the share of the service's working set that
// was in memory.
func (m memoryExperiment) residentMetric(r report.Run) float64 {
	set := m.experiment.Memory.Set
	return report.KnownOrNaN(float64(m.uses[r.Index].LSHeld)/float64(set), set > 0)
}
