// Package report turns the raw data of an experiment into a table for the
// terminal, a documented JSON result and one self-contained HTML page. It only
// reads files, so each report can be made again later from the raw data.
package report

import (
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/model/unit"
)

// An Experiment describes an experiment and its machine: experiment.json. If a
// kind of experiment has more fields, its own record embeds Experiment.
type Experiment struct {
	Header
	// Looks are the numbers of blocks at which the claims are judged. They were
	// fixed before the first run. If Looks is empty, they are not known,
	// because an older version ran the experiment.
	Looks       []int         `json:"planned_looks,omitempty"`
	Duration    time.Duration `json:"duration_ns"`
	Margin      float64       `json:"margin"`            // 1.03
	LabCPUs     unit.CPUSet   `json:"lab_cpus,omitzero"` // of the lab itself and of tenond
	Client      string        `json:"client"`            // "tenon" or "wrk"
	OfferedRate float64       `json:"offered_requests_per_second"`
	LoadPercent float64       `json:"load_percent"`
	BEProcesses int           `json:"be_processes"`
	BEThreads   int           `json:"be_threads"`
	Input       string        `json:"input"`
	// SoloFramesPerSecond is the frame rate of the batch work when it ran alone on
	// the tested CPUs, in the calibration. SoloCPU is the number of CPUs that the
	// batch work used.
	SoloFramesPerSecond float64  `json:"solo_frames_per_second"`
	SoloCPU             float64  `json:"solo_cpus_used"`
	Calibration         []string `json:"calibration,omitempty"` // the results of the calibration, one per line
}

// Rule returns the rule by which the claims of an experiment with this number
// of blocks are judged.
func (e Experiment) Rule(blocks int) paired.Rule {
	rule := paired.Blocks()
	rule.Looks = e.Looks
	if len(e.Looks) == 0 {
		return rule.Planned(blocks)
	}
	return rule
}

// LooksOf returns the planned looks of an experiment. Usually there is one,
// after all blocks. With 0 blocks, the experiment ends when its claims are
// decided, at a look of the rule.
func LooksOf(blocks int) []int {
	if blocks > 0 {
		return []int{blocks}
	}
	return paired.Blocks().Looks
}

// A Run is the measurement of one mode in one block: runs/NNN-MODE.json. The
// latency histogram is in the file runs/NNN-MODE.hlog. If a kind of experiment
// has more fields, its own record embeds Run.
type Run struct {
	Index   int           `json:"index"`
	Block   int           `json:"block"`
	Mode    Mode          `json:"mode"`
	Started time.Time     `json:"started"`
	Length  time.Duration `json:"length_ns"` // of the measured part
	Warmup  time.Duration `json:"warmup_ns"` // discarded before it
	// Void lists the reasons why the run must not be used. It is empty if the
	// run is valid.
	Void []string `json:"void,omitempty"`
	// Cause is the cause of these reasons. Runs of older versions have none.
	Cause Cause `json:"void_cause,omitempty"`
	// Warnings do not make the run void.
	Warnings []string `json:"warnings,omitempty"`

	Latency load.Latency `json:"latency"`
	// WithStalls is the latency of all requests, including those that Latency
	// omits because the client did not run. It is nil in runs of older
	// versions, which did not store it.
	WithStalls *load.Latency `json:"latency_with_stalls,omitempty"`
	Requests   int64         `json:"requests"`
	// Answered is the number of requests that a closed loop (wrk) sent and got answered
	// per second. With an open loop it is 0, because the rate is that offered.
	Answered   float64        `json:"answered_per_second,omitempty"`
	Errors     map[string]int `json:"errors,omitempty"`
	ClientLag  load.Latency   `json:"client_lag"`
	Spoiled    float64        `json:"spoiled_ratio"`    // share of requests that were left out because the client did not run
	ClientCPU  float64        `json:"client_cpu_ratio"` // busy share of the client's CPUs
	CPUPercent float64        `json:"cpu_percent"`      // of the tested CPUs, by all work
	LSCPU      float64        `json:"ls_cpus_used"`
	BECPU      float64        `json:"be_cpus_used"`
	OtherCPU   float64        `json:"other_cpus_used"`
	// NodeMetricsCPU is the amount of CPU that the whole node used, according to
	// the metrics API of the cluster, or to the counter of its kubelet. 0 means that this is not known.
	NodeMetricsCPU float64       `json:"node_metrics_cpus_used,omitempty"`
	StealRatio     float64       `json:"steal_ratio"`
	Frames         float64       `json:"be_frames"`
	FramesPerS     float64       `json:"be_frames_per_second"`
	RunDelay       time.Duration `json:"ls_run_delay_ns"`      // Δrun_delay over all LS threads
	Timeslices     int64         `json:"ls_timeslices"`        // Δpcount over all LS threads
	DelayPerRun    float64       `json:"ls_runqueue_delay_us"` // RunDelay / Timeslices
	LSThrottled    time.Duration `json:"ls_throttled_ns"`
	BEThrottled    time.Duration `json:"be_throttled_ns"`
	PSICPU         float64       `json:"psi_cpu_some_ratio"` // share of the run; -1: not available
	// Series are samples for the picture of CPU over time.
	Series []Sample `json:"series,omitempty"`
	// Writes are the writes to the kernel during the run, each with its reason.
	Writes []string `json:"writes,omitempty"`

	// Histogram comes from the .hlog of the run. Values are in µs with 3 digits.
	Histogram *hdrhistogram.Histogram `json:"-"`
	// Log writes the .hlog (hlog.Write). Only SaveRun calls it. It is nil if
	// the client has no histogram.
	Log func(io.Writer) error `json:"-"`
}

// Common returns the part of a record that all kinds of experiments have.
func (r *Run) Common() *Run { return r }

// A Record is a run of one kind of experiment. It is a *Run, or a pointer to a
// struct that embeds a Run.
type Record interface{ Common() *Run }

// Commons returns the common parts of records.
func Commons[R any, P interface {
	*R
	Record
}](records []R) []Run {
	runs := make([]Run, len(records))
	for i := range records {
		runs[i] = *P(&records[i]).Common()
	}
	return runs
}

// A Sample is the CPU usage on the tested CPUs at one time, in CPUs.
type Sample struct {
	At    time.Duration `json:"at_ns"` // since the measured part of the run began
	LS    float64       `json:"ls"`
	BE    float64       `json:"be"`
	Other float64       `json:"other"`
	Limit float64       `json:"be_limit,omitempty"` // the BE quota in CPUs; 0: none
}
