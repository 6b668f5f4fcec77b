package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// machine is the experiment on this machine, after its set-up: the programs have
// been found and the film has been rendered. Close restores the machine.
type machine struct {
	bench
	ffmpegPath    string
	ffmpegVersion work.Version
	input         string
	reports       string       // directory in which each ffmpeg reports its progress while modes take turns
	service       work.Service // zero: the service is self
	kept          *keptService // nil: the service starts again for each run, or has not started yet
}

// enterMachine prepares an experiment. It chooses the modes, finds the programs and
// prepares their files. If it fails, it restores the machine.
func enterMachine(ctx context.Context, c Config) (_ site, err error) {
	b := &machine{bench: bench{Config: c, versions: map[string]string{}}}
	if b.Site, err = testbed.Enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.Modes, b.skipped, err = modesHere(c.Modes, c.LeaveOut, b.Supports); err != nil {
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
	if b.input = c.Input; b.input == "" && slices.Contains(b.Workloads.Batch, "ffmpeg") {
		rendering := func() { b.Status.Now("rendering the clip, once for this machine") }
		if b.input, err = work.Clip(ctx, b.ffmpegPath, c.CacheDir, rendering); err != nil {
			return nil, err
		}
	}
	if b.switches() {
		if b.reports, err = b.Directory(""); err != nil {
			return nil, err
		}
	}
	return b, b.StepAside()
}

// find finds the programs and asks for their versions.
func (b *machine) find(ctx context.Context) error {
	var err error
	if err := b.findWrk(); err != nil {
		return err
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

func (b *machine) prepare(context.Context) error {
	b.size()
	return nil
}

func (b *machine) least() time.Duration { return 800 * time.Millisecond }

func (b *machine) overhead() time.Duration {
	if b.kernelQOS {
		return 2*time.Second + traceLength
	}
	return 2 * time.Second
}

func (b *machine) describe(e *colocation.Experiment) {
	e.Machine = testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	if b.kernelQOS {
		e.Machine.Mechanisms = nil
		for _, m := range b.Modes {
			if mechanism := m.Spec().Mechanism; mechanism != "" {
				e.Machine.Mechanisms = append(e.Machine.Mechanisms, string(mechanism))
			}
		}
	}
	if b.Workloads.ByCommand() {
		e.Client = harness.ClientCommand
	}
	e.Tenond, e.Input, e.Own = b.tenondRecord(), filepath.Base(b.input), b.ownRecord()
	e.Siblings, e.BatchRequest = b.Place.Siblings(b.Topology), batchRequest(b.Modes, unit.CPUs(b.Place.Tested.Len()))
	b.caveats = append(b.caveats, b.ownCaveats()...)
}

// batchRequest returns the CPU request of the batch pod in mode burstable, in
// thousandths of a CPU, beside a service with a given request. It is 0 if that mode
// does not run.
func batchRequest(modes []report.Mode, service unit.MilliCPU) int {
	if !slices.Contains(modes, report.Burstable) {
		return 0
	}
	return int(report.Burstable.Spec().BatchRequest(service))
}

// tenondRecord returns the configuration of tenond in each mode, for experiment.json.
func (b *machine) tenondRecord() map[report.Mode]string {
	if b.Agent == "" {
		return nil
	}
	told := map[report.Mode]string{}
	for _, m := range b.Modes {
		if t := m.Spec(); t.Tenon {
			told[m] = colocationTenond(b.pods(0), t).Record(b.Agent)
		}
	}
	return told
}

// ownCaveats returns notes about the set-up, for the reader of the report.
func (b *machine) ownCaveats() []string {
	list := b.Site.Caveats()
	if b.Client == harness.ClientWrk {
		list = append(list, closedLoop)
	}
	if b.switches() && slices.Contains(b.Workloads.Batch, "ffmpeg") && !b.ffmpegVersion.AtLeast(4, 4) {
		list = append(list, fmt.Sprintf("ffmpeg %s reports its progress twice a second only, so frames of half a second may count for the mode before", b.versions["ffmpeg"]))
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
