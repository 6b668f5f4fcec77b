// Package colocation holds the records, the analysis and the presentation of
// the colocation experiment and of the kernel-qos experiment. In both, a
// service runs beside batch work in several modes.
package colocation

import (
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
)

// The kinds of experiments in this package. The files of a colocation
// experiment do not name their kind.
const (
	Kind          = ""
	KindKernelQOS = "kernel-qos"
)

// An Experiment describes an experiment and its machine: experiment.json.
type Experiment struct {
	report.Experiment
	// Kubernetes is set if the experiment ran on a node of a cluster.
	Kubernetes *KubernetesSetup `json:"kubernetes,omitempty"`
	// Skipped lists the modes that this node cannot run.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Siblings is true if tested CPUs share a core (SMT).
	Siblings bool `json:"tested_siblings,omitempty"`
	// Own is set if the user chose other workloads than nginx and ffmpeg.
	Own *Own `json:"own_workloads,omitempty"`
	// BatchRequest is the CPU request of the batch pod in mode burstable, in
	// thousandths of a CPU. The service requests all tested CPUs. Records of
	// older versions do not have it: it was 625 for each tested CPU.
	BatchRequest int `json:"batch_request_mcpu,omitempty"`
	// BatchPods is the number of batch pods that the scheduler of a cluster places. 0:
	// there is one, which the lab binds to the node itself.
	BatchPods int `json:"batch_pods,omitempty"`
	// Design is empty if each mode has a start of its own, in blocks.
	Design Design `json:"design,omitempty"`
	// Turn is how long a mode lasts in an experiment that switches modes. The
	// measurement leaves out the first Settle of it.
	Turn   time.Duration `json:"turn_ns,omitempty"`
	Settle time.Duration `json:"settle_ns,omitempty"`
	// Check is what the machine was like before the first start of such an experiment.
	Check *Check `json:"check,omitempty"`
}

// A Design is the way in which an experiment measures its modes.
type Design string

// The designs. In blocks, the service and the batch work start anew for each mode.
// With switched modes they start a few times, and the mode changes every second.
const (
	DesignBlocks Design = "blocks"
	DesignSwitch Design = "switch"
)

// Own describes the service and the batch work of an experiment if they are not
// nginx and ffmpeg.
type Own struct {
	Service string    `json:"service"`
	Command []string  `json:"service_command,omitempty"`
	Load    string    `json:"load"` // URL or command
	Batch   []OwnWork `json:"batch"`
}

// OwnWork describes one kind of batch work.
type OwnWork struct {
	Name    string   `json:"name"`
	Command []string `json:"command,omitempty"`
	Unit    string   `json:"unit"`
	Solo    float64  `json:"solo_per_second"` // rate beside the other batch work, without the service
}

// A KubernetesSetup names the node and the images of an experiment on a
// cluster.
type KubernetesSetup struct {
	Node   string            `json:"node"`
	Images map[string]string `json:"images"` // of nginx and ffmpeg
}

// A Skipped is a mode that the node cannot run.
type Skipped struct {
	Mode report.Mode `json:"mode"`
	Why  string      `json:"why"`
}

// A Run is the measurement of one mode in one block.
type Run struct {
	report.Run
	// Traced is the trace of the kernel's scheduler. The lab records it after
	// the measured part, under the same load.
	Traced *Traced `json:"traced,omitempty"`
	// Work is the rate of each batch work of the user, in its unit per second.
	// FramesPerS is then the mean of relative rates: each is the rate of a
	// batch work, divided by its rate without the service.
	Work []float64 `json:"be_work_per_second,omitempty"`
	// BatchPods is nil if the scheduler placed no batch pod.
	BatchPods *BatchPods `json:"batch_pods,omitempty"`
	// Windows are the parts of a run that switches between modes. The other
	// fields of such a run describe all modes together.
	Windows []Window `json:"windows,omitempty"`
}

// A Window is the measured part of one turn of a mode.
type Window struct {
	report.Run
	// Round is the number of the round within the start, from 1. Each round has
	// every mode once.
	Round int `json:"round"`
	// Early and Late are the latencies of all requests that were due in the first
	// and in the second half of the window. The two together are those of the
	// window.
	Early load.Packed `json:"early_latency_histogram_us"`
	Late  load.Packed `json:"late_latency_histogram_us"`
}

// Traced summarises the trace of the kernel's scheduler on the tested CPUs. The
// trace is recorded after the measured part, because it costs time to record
// every context switch.
type Traced struct {
	Length time.Duration `json:"length_ns"`
	LSTime time.Duration `json:"ls_time_ns"` // CPU time of the service
	BETime time.Duration `json:"be_time_ns"`
	// Beside is the part of LSTime in which BE ran on the same core. Starts is
	// the number of times that BE began to run after LS had been running on the
	// sibling for a while.
	Beside time.Duration `json:"be_beside_ls_ns"`
	Starts int           `json:"be_starts_beside_ls"`
	// Wakes is the number of times that the service's threads woke up. The
	// percentiles are of the time from a wake-up until the thread ran.
	Wakes   int     `json:"ls_wakes"`
	WakeP50 float64 `json:"ls_wake_delay_p50_us"`
	WakeP90 float64 `json:"ls_wake_delay_p90_us"`
	WakeP99 float64 `json:"ls_wake_delay_p99_us"`
}

// A TracedResult is the trace of one mode. The values are medians over those
// blocks whose valid run has a trace.
type TracedResult struct {
	// Beside is the share of the service's CPU time in which BE ran on the same
	// core. It is null if the tested CPUs do not share cores.
	Beside     report.Number `json:"be_beside_ls_ratio"`
	StartsPerS report.Number `json:"be_starts_beside_ls_per_second"`
	WakeP50    report.Number `json:"ls_wake_delay_p50_us"`
	WakeP90    report.Number `json:"ls_wake_delay_p90_us"`
	WakeP99    report.Number `json:"ls_wake_delay_p99_us"`
}

// A ModeResult is the result of one mode.
type ModeResult struct {
	report.ModeResult
	// Traced is nil if no run of the mode has a trace.
	Traced *TracedResult `json:"traced,omitempty"`
	// Work is the median rate of each batch work of own_workloads, in its unit
	// per second.
	Work []report.Number `json:"be_work_per_second,omitempty"`
	// BatchPods is nil if no run of the mode has batch pods that the scheduler placed.
	BatchPods *BatchPodsResult `json:"batch_pods,omitempty"`
}

// A Result is the result of an experiment: result.json.
type Result = report.ResultOf[Experiment, ModeResult]

// A fullExperiment is an experiment with the values of its runs. The maps
// traced, work and pods have the index of the run as key.
type fullExperiment struct {
	experiment Experiment
	traced     map[int]*Traced
	work       map[int][]float64
	pods       map[int]*BatchPods
	medians    map[report.Mode][]report.Number  // of the work; filled by the analysis
	summaries  map[report.Mode]*TracedResult    // of the modes that have a trace; filled by the analysis
	placed     map[report.Mode]*BatchPodsResult // of the modes that have such pods; filled by the analysis
}

// Analyse turns the runs of a colocation experiment into its findings.
func Analyse(e Experiment, runs []Run) report.Analysis {
	return analyseColocated(e, runs, fullExperiment.study)
}

// AnalyseKernelQOS turns the runs of a kernel-qos experiment into its findings.
func AnalyseKernelQOS(e Experiment, runs []Run) report.Analysis {
	return analyseColocated(e, runs, fullExperiment.kernelQOSStudy)
}

func analyseColocated(e Experiment, runs []Run, study func(fullExperiment) report.Study) report.Analysis {
	c := fullExperiment{
		experiment: e, traced: map[int]*Traced{}, work: map[int][]float64{}, pods: map[int]*BatchPods{},
		medians: map[report.Mode][]report.Number{}, summaries: map[report.Mode]*TracedResult{}, placed: map[report.Mode]*BatchPodsResult{},
	}
	for _, r := range runs {
		c.work[r.Index], c.pods[r.Index] = r.Work, r.BatchPods
		if r.Traced != nil {
			c.traced[r.Index] = r.Traced
		}
	}
	a := report.Analyse(e.Experiment, report.Commons(runs), study(c))
	for m := range a.Base.Modes {
		if t := c.tracedSummary(a.Evidence(), m); t != nil {
			c.summaries[m] = t
		}
		if w := c.workOf(a.Evidence(), m); w != nil {
			c.medians[m] = w
		}
		if p := c.batchPodsOf(a.Evidence(), m); p != nil {
			c.placed[m] = p
		}
	}
	return a.WithResult(report.Extend(a.Base, e, func(m report.Mode, r report.ModeResult) ModeResult {
		return ModeResult{r, c.summaries[m], c.medians[m], c.placed[m]}
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
	if e.Design == DesignSwitch {
		return AnalyseSwitched(e, runs), nil
	}
	return analyse(e, runs), nil
}
