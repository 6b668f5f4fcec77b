package report

import (
	"time"

	"tenon.sh/tenon/internal/unit"
)

// A MemorySetup is how memory is divided in the memory experiment. Sizes are
// in bytes.
type MemorySetup struct {
	Set       unit.Bytes `json:"set_bytes"` // what the service reads at random
	Pages     int        `json:"pages"`     // it is divided into
	PageBytes int        `json:"page_bytes"`
	Parent    unit.Bytes `json:"parent_bytes"`   // what both sides may use together
	HogFile   unit.Bytes `json:"be_file_bytes"`  // what the batch work goes through again and again
	HogHeld   unit.Bytes `json:"be_anon_bytes"`  // what it holds of it in memory of its own
	Request   unit.Bytes `json:"ls_request"`     // what the service's rule says that it counts on
	HogLimit  unit.Bytes `json:"be_limit_bytes"` // the limit of the batch work's rule
	// The shares that mode tenond asks for; 0: none.
	MinPercent        int `json:"ls_min_percent"`
	LowPercent        int `json:"ls_low_percent"`
	ThrottlingPercent int `json:"be_throttling_percent"`
}

// A MemoryUse is what happened to memory in the measured part of a run.
type MemoryUse struct {
	// LSRefaults are pages of the service that came back soon after they had
	// been reclaimed, and LSMajorFaults the faults that waited for a device.
	LSRefaults    int64      `json:"ls_refaults"`
	LSMajorFaults int64      `json:"ls_major_faults"`
	BERefaults    int64      `json:"be_refaults"`
	LSHeld        unit.Bytes `json:"ls_file_bytes"` // page cache of the service, mean
	BEHeld        unit.Bytes `json:"be_held_bytes"` // page cache and memory of the batch work, mean
	BEBytes       int64      `json:"be_bytes_processed"`
	Course        []Held     `json:"course,omitempty"`
}

// Held is who held how much memory at a moment.
type Held struct {
	At     time.Duration `json:"at_ns"` // since the run's measured part began
	LS     unit.Bytes    `json:"ls_file_bytes"`
	BEFile unit.Bytes    `json:"be_file_bytes"`
	BEAnon unit.Bytes    `json:"be_anon_bytes"`
}

// isMemory reports whether the experiment is the one about memory.
func (e Experiment) isMemory() bool { return e.Kind == KindMemory && e.Memory != nil }

// Metrics of the memory experiment.

func refaults(r Run) float64 {
	if r.Memory == nil {
		return known(0, false)
	}
	return float64(r.Memory.LSRefaults) / r.Length.Seconds()
}

func majorFaults(r Run) float64 {
	if r.Memory == nil {
		return known(0, false)
	}
	return float64(r.Memory.LSMajorFaults) / r.Length.Seconds()
}

func processed(r Run) float64 {
	if r.Memory == nil {
		return known(0, false)
	}
	return positive(float64(r.Memory.BEBytes) / (1 << 20) / r.Length.Seconds())
}

// lsHeld is the share of the working set that is in memory.
func lsHeld(set unit.Bytes) metric {
	return func(r Run) float64 {
		if r.Memory == nil || set <= 0 {
			return known(0, false)
		}
		return float64(r.Memory.LSHeld) / float64(set)
	}
}
