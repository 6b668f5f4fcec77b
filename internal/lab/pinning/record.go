// Package pinning holds the records, the analysis and the presentation of the
// experiment on CPU pinning. The experiment shows how a quota, the choice of
// CPUs, and warm CPUs change the speed of a job with many threads and of web
// servers.
package pinning

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Kind is the kind of the experiment.
const Kind = "pinning"

// A Mode is a way to give work its CPUs.
type Mode string

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
	Schema      int         `json:"schema"` // 1
	Kind        string      `json:"kind"`   // pinning
	Started     time.Time   `json:"started"`
	Command     []string    `json:"command"`
	Version     string      `json:"tenon_version"`
	Parts       []string    `json:"parts"`
	Modes       []Mode      `json:"modes"`
	Blocks      int         `json:"blocks"`
	Seed        uint64      `json:"seed"`
	Limit       int         `json:"limit_cpus"` // of the job
	Tested      unit.CPUSet `json:"tested_cpus"`
	Client      unit.CPUSet `json:"client_cpus,omitzero"` // of the load on the web servers
	Servers     int         `json:"servers,omitempty"`
	ServerLimit int         `json:"server_limit_cpus,omitempty"`
	Threads     int         `json:"pi_threads,omitempty"`
	Digits      int         `json:"pi_digits,omitempty"`
	Rounds      int         `json:"pi_rounds,omitempty"`
	Rate        float64     `json:"open_rate,omitempty"` // requests per second of the open loop
	Refused     []string    `json:"refused,omitempty"`   // effects that the experiment cannot show, with the reasons
	// Node is the tested node of a cluster; empty: this machine. ClientOnNode is
	// true if the load came from that node itself.
	Node         string            `json:"node,omitempty"`
	ClientOnNode bool              `json:"client_on_node,omitempty"`
	Machine      report.Machine    `json:"machine"`
	Versions     map[string]string `json:"versions,omitempty"`
	Caveats      []string          `json:"caveats,omitempty"`
	Ended        report.End        `json:"ended,omitempty"`
}

// EndedBy returns the record after the end of the experiment.
func (e Experiment) EndedBy(end report.End) any {
	e.Ended = end
	return e
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

const runsFile = "runs.jsonl"

// AddRun appends a run to runs.jsonl.
func AddRun(dir string, r Run) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save run %d: %w", r.Index, err)
	}
	f, err := archive.OpenToAppend(filepath.Join(dir, runsFile))
	if err != nil {
		return fmt.Errorf("save run %d: %w", r.Index, err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("save run %d: %w", r.Index, err)
	}
	return nil
}

// Load reads an experiment and its runs. An experiment without a complete run
// is an error. If the experiment was killed, the last line may be incomplete,
// and Load ignores it.
func Load(dir string) (Experiment, []Run, error) {
	var e Experiment
	raw, data, err := archive.OpenExperiment(dir)
	if err != nil {
		return e, nil, err
	}
	name := filepath.Join(dir, report.ExperimentFile)
	switch err := json.Unmarshal(data, &e); {
	case err != nil:
		return e, nil, fmt.Errorf("load %s: %w", name, err)
	case e.Schema != report.Schema || e.Kind != Kind:
		return e, nil, fmt.Errorf("load %s: schema %d, kind %.80q: want schema %d, kind %s", name, e.Schema, e.Kind, report.Schema, Kind)
	}
	lines, err := fs.ReadFile(raw, runsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	var runs []Run
	for n := 1; ; n++ {
		line, rest, complete := bytes.Cut(lines, []byte("\n"))
		if !complete {
			return e, runs, archive.CheckData(raw, dir, runsFile, len(runs))
		}
		var r Run
		if err := json.Unmarshal(line, &r); err != nil {
			return e, nil, fmt.Errorf("load %s: line %d: %w", filepath.Join(dir, runsFile), n, err)
		}
		runs, lines = append(runs, r), rest
	}
}

// Open reads and analyses the experiment in dir.
func Open(dir string) (report.Findings, error) {
	e, runs, err := Load(dir)
	if err != nil {
		return nil, err
	}
	return findings{Analyse(e, runs)}, nil
}

type findings struct{ result Result }

// Result returns the content of result.json.
func (f findings) Result() any { return f.result }

// WriteTable prints the result for a terminal.
func (f findings) WriteTable(w io.Writer) error { return writeTable(w, f.result) }

// WritePage writes the result as one self-contained HTML page.
func (f findings) WritePage(w io.Writer) error { return writePage(w, f.result) }
