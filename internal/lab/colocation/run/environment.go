package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// An environment is the colocation experiment after its set-up: the programs
// have been found and the film has been rendered. Close restores the machine.
type environment struct {
	Config
	*testbed.Site

	versions map[string]string

	ffmpegPath, wrkPath string
	ffmpegVersion       work.Version
	input               string
	processes, threads  int

	load    harness.LoadSpec
	record  colocation.Experiment
	pacer   Pacer
	skipped []colocation.Skipped

	kept *keptService // nil: the service starts again for each run, or has not started yet

	service work.Service // zero: the service is self
	works   []work.Work  // empty: the only batch work is ffmpeg
	solo    []float64    // rate of each work when it runs alone
}

// newEnvironment prepares an experiment. It chooses the modes, finds the
// programs and prepares their files. If it fails, it restores the machine.
func newEnvironment(ctx context.Context, c Config) (_ *environment, err error) {
	b := &environment{Config: c, versions: map[string]string{}}
	if b.Site, err = testbed.Enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.Modes, b.skipped, err = modesHere(c.Modes, b.Supports); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(b.Modes, isSession) {
		if err := b.CheckLeaving(); err != nil {
			return nil, fmt.Errorf("modes %s: %w", harness.JoinModes(report.SessionModes), err)
		}
	}
	if err := b.find(ctx); err != nil {
		return nil, err
	}
	b.processes, b.threads = Batch(b.Place.Tested.Len())
	if b.BEProcesses > 0 {
		b.processes = b.BEProcesses
	}
	if b.BEThreads > 0 {
		b.threads = b.BEThreads
	}
	b.load = harness.LoadSpec{URL: b.target(), Duration: b.Duration, Warmup: b.Warmup(), Seed: b.Seed, Connections: b.connections()}
	if b.input = c.Input; b.input == "" && slices.Contains(b.Workloads.Batch, "ffmpeg") {
		rendering := func() { b.Status.Now("rendering the clip, once for this machine") }
		if b.input, err = work.Clip(ctx, b.ffmpegPath, c.CacheDir, rendering); err != nil {
			return nil, err
		}
	}
	return b, b.StepAside()
}

// find finds the programs and asks for their versions.
func (b *environment) find(ctx context.Context) error {
	var err error
	if b.Client == harness.ClientWrk {
		if b.wrkPath, err = work.WrkProgram.Find(); err != nil {
			return err
		}
	}
	if err := b.findWorkloads(ctx); err != nil || !slices.Contains(b.Workloads.Batch, "ffmpeg") {
		return err
	}
	if b.ffmpegPath, err = work.FFmpegProgram.Find(); err != nil {
		return err
	}
	if b.ffmpegVersion, b.versions["ffmpeg"], err = work.FFmpegProgram.Ask(ctx, b.ffmpegPath); err != nil {
		return err
	}
	for _, m := range b.Modes {
		if m.Spec().Paced && !b.ffmpegVersion.AtLeast(5, 0) {
			return fmt.Errorf("mode %s needs ffmpeg 5.0 or newer for -readrate, this is %s: leave the mode out with --modes", m, b.versions["ffmpeg"])
		}
	}
	return work.CheckEncoder(ctx, b.ffmpegPath)
}

// experiment returns the record of the experiment.
func (b *environment) experiment(solo SoloResult, calibration []string, caveats []string) colocation.Experiment {
	machine := testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	if b.kernelQOS {
		machine.Mechanisms = nil
		for _, m := range b.Modes {
			if mechanism := m.Spec().Mechanism; mechanism != "" {
				machine.Mechanisms = append(machine.Mechanisms, string(mechanism))
			}
		}
	}
	client := b.Client
	if b.Workloads.ByCommand() {
		client = harness.ClientCommand
	}
	h := b.Header(b.kind(), b.Modes, b.Blocks)
	h.Machine, h.Tenond, h.Versions, h.Caveats = machine, b.tenondRecord(), b.versions, append(caveats, b.caveats()...)
	return colocation.Experiment{Experiment: report.Experiment{
		Header: h, Looks: report.LooksOf(b.Blocks), Duration: b.Duration, Margin: b.Margin, LabCPUs: b.Place.Lab, Client: client,
		OfferedRate: b.load.Rate, LoadPercent: b.LoadPercent,
		BEProcesses: b.processes, BEThreads: b.threads, Input: filepath.Base(b.input),
		SoloFramesPerSecond: solo.Frames, SoloCPU: solo.CPUs, Calibration: calibration,
	}, Skipped: b.skipped, Siblings: b.Place.Siblings(b.Topology), Own: b.ownRecord(), BatchRequest: batchRequest(b.Modes, b.Place.Tested)}
}

// batchRequest returns the CPU request of the batch pod in thousandths of a CPU,
// or 0 if no mode has a batch pod with a request.
func batchRequest(modes []report.Mode, tested unit.CPUSet) int {
	if !slices.Contains(modes, report.Burstable) {
		return 0
	}
	return int(testbed.BatchRequest(tested.Len()))
}

// tenondRecord returns the configuration of tenond in each mode, for experiment.json.
func (b *environment) tenondRecord() map[report.Mode]string {
	if b.Agent == "" {
		return nil
	}
	told := map[report.Mode]string{}
	for _, m := range b.Modes {
		if t := m.Spec(); t.Tenon {
			told[m] = colocationTenond(b.pods(false), t).Record(b.Agent)
		}
	}
	return told
}

// caveats returns notes about the set-up, for the reader of the report.
func (b *environment) caveats() []string {
	list := b.Site.Caveats()
	if b.Client == harness.ClientWrk {
		list = append(list, "wrk is a closed-loop client: a stall hides the requests that it delays, so its percentiles are too low")
	}
	if b.Workloads.Keep {
		list = append(list, "the service is kept between the runs: each run begins in the state in which the run before it left the service")
	}
	if slices.ContainsFunc(b.Modes, isSession) {
		list = append(list, fmt.Sprintf("modes %s: service and batch processes run in the root cgroups, each in a session of its own, bound to the tested CPUs; %s", harness.JoinModes(report.SessionModes), b.Autogroup()))
	}
	return list
}

func isSession(m report.Mode) bool { return m.Spec().Sessions }
