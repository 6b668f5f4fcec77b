// Package pinning holds the records, the analysis and the presentation of the
// experiment on CPU pinning. The experiment shows how a quota, the choice of
// CPUs, and warm CPUs change the speed of a job with many threads and of web
// servers.
package pinning

import (
	"time"

	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Kind is the kind of the experiment.
const Kind = "pinning"

// A Mode is a way to give work its CPUs.
type Mode = report.Mode

// The modes. In each mode the work gets as much CPU time as its limit allows.
// There is one exception: in mode shared-free, the job uses all CPUs.
const (
	Shared      Mode = "shared"       // a quota, on all CPUs
	SharedAA    Mode = "shared-aa"    // shared once more, to show the resolution of this machine
	SharedFree  Mode = "shared-free"  // all CPUs, without a quota
	SharedWarm  Mode = "shared-warm"  // shared; idle-class spinners keep the CPUs awake
	Pinned      Mode = "pinned"       // CPUs of its own, without a quota
	PinnedQuota Mode = "pinned-quota" // the same CPUs, with the quota
	PinnedWorst Mode = "pinned-worst" // the worst choice of as many CPUs, without a quota
	StaticBurst Mode = "static-burst" // a pool of one L3 cache, with the quota
)

// Modes lists all modes in the order of the tables.
var Modes = []Mode{Shared, SharedAA, SharedFree, SharedWarm, Pinned, PinnedQuota, PinnedWorst, StaticBurst}

// The parts of the experiment.
const (
	Pi    = "pi"    // a job of many threads
	NGINX = "nginx" // web servers
)

// An Experiment is the configuration of the experiment, and its machine
// (experiment.json).
type Experiment struct {
	report.Header          // its client CPUs are those of the load on the web servers
	Parts         []string `json:"parts"`
	Limit         int      `json:"limit_cpus"` // of the job
	Servers       int      `json:"servers,omitempty"`
	ServerLimit   int      `json:"server_limit_cpus,omitempty"`
	Threads       int      `json:"pi_threads,omitempty"`
	Digits        int      `json:"pi_digits,omitempty"`
	Rounds        int      `json:"pi_rounds,omitempty"`
	Rate          float64  `json:"open_rate,omitempty"` // requests per second of the open loop
	// Node is the tested node of a cluster; empty: this machine. ClientOnNode is
	// true if the load came from that node itself.
	Node         string `json:"node,omitempty"`
	ClientOnNode bool   `json:"client_on_node,omitempty"`
}

// A Run is one part of the experiment in one mode: a line of runs.jsonl. Its
// counters are those of the job. For servers, they are the sums over all
// servers while the closed loop ran.
type Run struct {
	Index     int         `json:"index"`
	Block     int         `json:"block"`
	Part      string      `json:"part"`
	Mode      Mode        `json:"mode"`
	Started   time.Time   `json:"started"`
	CPUs      unit.CPUSet `json:"cpus"`        // of the work
	Seconds   float64     `json:"seconds"`     // of the job, or of the closed loop
	CPU       float64     `json:"cpu_seconds"` // 0: not counted, nor are the next three
	Periods   int64       `json:"periods"`
	Throttled int64       `json:"throttled_periods"`
	Waiting   float64     `json:"waiting_seconds"`  // for a CPU, of all threads
	Moves     *float64    `json:"migrations"`       // null: not counted
	Switches  *float64    `json:"context_switches"` // null: not counted
	PiResult  *pi.Report  `json:"pi,omitempty"`
	Closed    *ClosedLoop `json:"closed_loop,omitempty"`
	Open      *OpenLoop   `json:"open_loop,omitempty"`
	Void      []string    `json:"void,omitempty"`
}

// A ClosedLoop holds the numbers that wrk prints. With several servers, Rate is
// the sum over all servers, Mean is their mean, weighted by the requests, and
// every other value is the largest of any server.
type ClosedLoop struct {
	Rate  float64 `json:"requests_per_second"`
	Mean  float64 `json:"mean_us"`
	Stdev float64 `json:"stdev_us"`
	Max   float64 `json:"max_us"`
	P50   float64 `json:"p50_us"`
	P75   float64 `json:"p75_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
}

// ClosedLoopOf returns the columns of one run of wrk.
func ClosedLoopOf(w *wrk.Result) ClosedLoop {
	return ClosedLoop{
		Rate: w.RequestRate, Mean: w.ThreadLatency.Mean, Stdev: w.ThreadLatency.Stdev, Max: w.ThreadLatency.Max,
		P50: w.Latency.P50, P75: w.Latency.P75, P90: w.Latency.P90, P99: w.Latency.P99,
	}
}

// An OpenLoop holds the latencies at a fixed rate. With several servers, Mean is
// the mean over all servers, and each percentile is the largest of any server.
type OpenLoop struct {
	Rate float64 `json:"offered_per_second"`
	Mean float64 `json:"mean_us"`
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
}

// AddRun appends a run to the raw data of an experiment.
func AddRun(dir string, r Run) error { return report.AddLines(dir, report.RunsFile, r) }

// Load reads an experiment and its runs.
func Load(dir string) (Experiment, []Run, error) {
	return report.LoadLines[Experiment, Run](dir, Kind, report.RunsFile, nil)
}

// Open reads and analyses the experiment in dir.
func Open(dir string) (report.Findings, error) {
	e, runs, err := Load(dir)
	if err != nil {
		return nil, err
	}
	return Analyse(e, runs), nil
}
