// Package report turns the raw data of an experiment into a table for the
// terminal, a documented JSON result and one self-contained HTML page. It
// reads files only: any report can be rebuilt later from the raw data.
package report

import (
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/model/unit"
)

// An Experiment is the configuration of an experiment and its machine:
// experiment.json. Kinds of experiments that need more embed it in a record of
// their own.
type Experiment struct {
	Schema      int           `json:"schema"` // 1
	Kind        string        `json:"kind,omitempty"`
	Started     time.Time     `json:"started"`
	Command     []string      `json:"command"`
	Version     string        `json:"tenon_version"`
	Modes       []Mode        `json:"modes"`
	Blocks      int           `json:"blocks"` // configured; 0: until resolved
	Duration    time.Duration `json:"duration_ns"`
	Seed        uint64        `json:"seed"`
	Margin      float64       `json:"margin"` // 1.03
	TestedCPUs  unit.CPUSet   `json:"tested_cpus"`
	ClientCPUs  unit.CPUSet   `json:"client_cpus"`
	Client      string        `json:"client"` // "tenon" or "wrk"
	OfferedRate float64       `json:"offered_requests_per_second"`
	LoadPercent float64       `json:"load_percent"`
	BEProcesses int           `json:"be_processes"`
	BEThreads   int           `json:"be_threads"`
	Input       string        `json:"input"`
	// SoloFramesPerSecond is the frame rate of the batch work alone on the
	// tested CPUs at the calibration, and SoloCPU the CPUs that it used.
	SoloFramesPerSecond float64           `json:"solo_frames_per_second"`
	SoloCPU             float64           `json:"solo_cpus_used"`
	Machine             Machine           `json:"machine"`
	Calibration         []string          `json:"calibration,omitempty"` // how rate and pace were found, a line each
	Caveats             []string          `json:"caveats,omitempty"`
	Versions            map[string]string `json:"versions"` // nginx, ffmpeg, …
	// Tenond is the start and the configuration of a mode's tenond; without it
	// the lab's own loop did the work.
	Tenond map[Mode]string `json:"tenond,omitempty"`
}

// Machine describes where the experiment ran.
type Machine struct {
	Kernel         string   `json:"kernel"`
	OS             string   `json:"os"`
	CPUModel       string   `json:"cpu_model"`
	CPUs           int      `json:"cpus"`
	SMT            bool     `json:"smt"`
	Virtualization string   `json:"virtualization"`     // "none", "kvm", …
	Emulated       bool     `json:"emulated,omitempty"` // by a program: times mean nothing
	CgroupVersion  int      `json:"cgroup_version"`
	MemoryBytes    int64    `json:"memory_bytes"`
	Governor       string   `json:"governor,omitempty"`
	Mechanisms     []string `json:"mechanisms"` // that Tenon used in its modes
}

// A Run is one mode in one block: runs/NNN-MODE.json. The latency histogram
// stands beside it as runs/NNN-MODE.hlog. Kinds of experiments that count more
// embed it in a record of their own.
type Run struct {
	Index   int           `json:"index"`
	Block   int           `json:"block"`
	Mode    Mode          `json:"mode"`
	Started time.Time     `json:"started"`
	Length  time.Duration `json:"length_ns"` // of the measured part
	Warmup  time.Duration `json:"warmup_ns"` // discarded before it
	// Void says why the run must not be used; empty: it counts.
	Void []string `json:"void,omitempty"`
	// Warnings do not void the run.
	Warnings []string `json:"warnings,omitempty"`

	Latency    Latency        `json:"latency"`
	Requests   int64          `json:"requests"`
	Errors     map[string]int `json:"errors,omitempty"`
	ClientLag  Latency        `json:"client_lag"`
	Spoiled    float64        `json:"spoiled_ratio"`    // of the requests: left out, the client did not run
	ClientCPU  float64        `json:"client_cpu_ratio"` // busy share of the client's CPUs
	CPUPercent float64        `json:"cpu_percent"`      // of the tested CPUs, all users
	LSCPU      float64        `json:"ls_cpus_used"`
	BECPU      float64        `json:"be_cpus_used"`
	OtherCPU   float64        `json:"other_cpus_used"`
	// NodeMetricsCPU is the use of the whole node by the cluster's metrics API;
	// 0: unknown.
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
	// Series is sampled along the run, for the picture of CPU over time.
	Series []Sample `json:"series,omitempty"`
	// Writes are the kernel writes of the run's mode, with their reasons.
	Writes []string `json:"writes,omitempty"`

	// Histogram is read from the .hlog beside the run; µs, 3 digits.
	Histogram *hdrhistogram.Histogram `json:"-"`
	// Log writes that .hlog (load.WriteLog); only SaveRun calls it. Nil: the
	// client gave no histogram.
	Log func(io.Writer) error `json:"-"`
}

// Common is the part of a record that all kinds of experiments have.
func (r *Run) Common() *Run { return r }

// A Record is a run of one kind of experiment: a Run, or a pointer to a struct
// that embeds one.
type Record interface{ Common() *Run }

// Commons are the common parts of records.
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

// Latency is a distribution in microseconds.
type Latency struct {
	P50  float64 `json:"p50_us"`
	P75  float64 `json:"p75_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
	Mean float64 `json:"mean_us"`
}

// A Sample is the CPU use of one moment, in CPUs of the tested set.
type Sample struct {
	At    time.Duration `json:"at_ns"` // since the run's measured part began
	LS    float64       `json:"ls"`
	BE    float64       `json:"be"`
	Other float64       `json:"other"`
	Limit float64       `json:"be_limit,omitempty"` // the BE quota in CPUs, where there is one
}
