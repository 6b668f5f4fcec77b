// Package colocation is the record of the colocation experiment and of the
// kernel-qos experiment, a service beside batch work in several modes: what was
// asked for and counted, what it shows, and how that is presented.
package colocation

import (
	"time"

	"tenon.sh/tenon/internal/lab/report"
)

// The kinds of experiment of this package. That of colocation has no name in
// its files.
const (
	Kind          = ""
	KindKernelQOS = "kernel-qos"
)

// A Experiment is what was asked for and where it ran:
// experiment.json.
type Experiment struct {
	report.Experiment
	// Kubernetes says that the experiment ran on a node of a cluster.
	Kubernetes *KubernetesSetup `json:"kubernetes,omitempty"`
	// Skipped are the modes that this node cannot run, and why.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Siblings says that tested CPUs share a core (SMT).
	Siblings bool `json:"tested_siblings,omitempty"`
}

// A KubernetesSetup is where in a cluster an experiment ran, and with which
// images.
type KubernetesSetup struct {
	Node   string            `json:"node"`
	Images map[string]string `json:"images"` // of nginx and ffmpeg
}

// A Skipped mode is one that the node cannot run.
type Skipped struct {
	Mode report.Mode `json:"mode"`
	Why  string      `json:"why"`
}

// A Run is one mode in one block.
type Run struct {
	report.Run
	// Traced is what the kernel's scheduler recorded after the measured part,
	// under the same load.
	Traced *Traced `json:"traced,omitempty"`
}

// Traced is what the kernel's own record of its scheduler says about the tested
// CPUs. It is made after the measured part, under the same load: a record of
// every switch costs time.
type Traced struct {
	Length time.Duration `json:"length_ns"`
	LSTime time.Duration `json:"ls_time_ns"` // CPU time of the service
	BETime time.Duration `json:"be_time_ns"`
	// Beside is the part of LSTime in which BE ran on the same core, and Starts
	// how often BE began to run while LS had been there for a while.
	Beside time.Duration `json:"be_beside_ls_ns"`
	Starts int           `json:"be_starts_beside_ls"`
	// Wakes is how often a thread of the service was woken; the percentiles are
	// of how long it took until it ran.
	Wakes   int     `json:"ls_wakes"`
	WakeP50 float64 `json:"ls_wake_delay_p50_us"`
	WakeP90 float64 `json:"ls_wake_delay_p90_us"`
	WakeP99 float64 `json:"ls_wake_delay_p99_us"`
}

// A TracedResult is what the record showed of one mode: medians over the blocks
// whose valid run has one.
type TracedResult struct {
	// Beside is the share of the service's CPU time in which BE ran on the same
	// core; null where tested CPUs do not share cores.
	Beside     report.Number `json:"be_beside_ls_ratio"`
	StartsPerS report.Number `json:"be_starts_beside_ls_per_second"`
	WakeP50    report.Number `json:"ls_wake_delay_p50_us"`
	WakeP90    report.Number `json:"ls_wake_delay_p90_us"`
	WakeP99    report.Number `json:"ls_wake_delay_p99_us"`
}

// A ModeResult is what one mode showed.
type ModeResult struct {
	report.ModeResult
	// Traced is what the kernel's scheduler recorded, where it was asked.
	Traced *TracedResult `json:"traced,omitempty"`
}

// A Result is what an experiment showed: result.json.
type Result = report.ResultOf[Experiment, ModeResult]

// A colocated experiment is one with its runs, by their index.
type colocated struct {
	experiment Experiment
	traced     map[int]*Traced
	summaries  map[report.Mode]*TracedResult // of the modes that have one; filled by the analysis
}

// Analyse turns the runs of a colocation experiment into its
// findings.
func Analyse(e Experiment, runs []Run) report.Analysis {
	return analyseColocated(e, runs, colocated.study)
}

// AnalyseKernelQOS turns the runs of a kernel-qos experiment into its findings.
func AnalyseKernelQOS(e Experiment, runs []Run) report.Analysis {
	return analyseColocated(e, runs, colocated.kernelQOSStudy)
}

func analyseColocated(e Experiment, runs []Run, study func(colocated) report.Study) report.Analysis {
	c := colocated{e, map[int]*Traced{}, map[report.Mode]*TracedResult{}}
	for _, r := range runs {
		if r.Traced != nil {
			c.traced[r.Index] = r.Traced
		}
	}
	a := report.Analyse(e.Experiment, report.Commons(runs), study(c))
	for m := range a.Base.Modes {
		if t := c.tracedSummary(a.Evidence(), m); t != nil {
			c.summaries[m] = t
		}
	}
	return a.WithResult(report.Extend(a.Base, e, func(m report.Mode, r report.ModeResult) ModeResult {
		return ModeResult{r, c.summaries[m]}
	}))
}

// Open loads and analyses the colocation experiment in dir.
func Open(dir string) (report.Findings, error) { return openColocated(dir, Analyse) }

// OpenKernelQOS loads and analyses the kernel-qos experiment in dir.
func OpenKernelQOS(dir string) (report.Findings, error) { return openColocated(dir, AnalyseKernelQOS) }

func openColocated(dir string, analyse func(Experiment, []Run) report.Analysis) (report.Findings, error) {
	e, runs, err := report.Load[Experiment, Run](dir)
	if err != nil {
		return nil, err
	}
	return analyse(e, runs), nil
}
