package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/turns"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// A runSetUp holds all processes and cgroups of one mode, ready to be measured.
type runSetUp struct {
	b           *machine
	pods        testbed.Pods
	spinner     *testbed.Process
	nginx       *testbed.Process
	self        *work.SelfDriven // nil: the service does not generate its own load
	work        work.Batches
	agentRunner *testbed.AgentRunner
	sampler     *harness.Sampler
}

// setUp starts a mode. It creates the cgroups that the kubelet would create. It
// starts the service, the batch work and, in a mode with Tenon, the agent. It
// returns when the service answers and every batch process encodes.
func (b *machine) setUp(ctx context.Context, t report.ModeSpec, rate float64) (_ stage, err error) {
	st := &runSetUp{b: b, pods: b.pods(t.BatchRequest(unit.CPUs(b.Place.Tested.Len())))}
	defer func() {
		if err != nil {
			err = st.close(ctx, err)
		}
	}()
	if err := st.pods.Build(b.Host, b.Tree); err != nil {
		return nil, err
	}
	if t.Spinner {
		if err := st.pods.BuildSpinner(b.Host, b.Tree, t.LeastWeight); err != nil {
			return nil, err
		}
		if st.spinner, err = b.spin(st.pods, t.LeastWeight); err != nil {
			return nil, err
		}
	}
	st.sampler = &harness.Sampler{Tree: b.Tree, FS: b.FS, Tested: b.Place.Tested, Service: st.pods.NGINXPod()}
	if t.Batch {
		st.sampler.Batch, st.sampler.Root = st.pods.JobPod(), st.pods.Batch()
	}
	if t.Spinner {
		st.sampler.Spinner = st.pods.Spinner()
	}
	if !t.Alone {
		if err := st.startService(ctx, t); err != nil {
			return nil, err
		}
	}
	if t.Batch {
		for _, job := range b.jobs(t, rate) {
			w, err := work.StartBatch(b.Site, job, st.pods.JobGroup())
			if err != nil {
				return nil, err
			}
			st.work = append(st.work, w)
		}
	}
	if t.Tenon {
		if st.agentRunner, err = b.govern(ctx, st.pods, t); err != nil {
			return nil, err
		}
	}
	if st.work != nil {
		if err := st.work.Encoding(ctx); err != nil {
			return nil, err
		}
	}
	if t.Sessions {
		st.sampler.BatchUsed = func() (time.Duration, error) { return st.work.Used(b.FS) }
	}
	return st, nil
}

// pods returns the cgroups of an experiment with a CPU request of the batch pod; 0:
// none.
func (b *machine) pods(request unit.MilliCPU) testbed.Pods {
	p := testbed.Pods{Root: b.Root, Request: request, Tested: b.Place.Tested}
	if b.Workloads.AreCustom() {
		p.Service, p.Job = "service", "batch"
	}
	return p
}

// startService starts the service, or uses the one that is kept. It tells the
// sampler how to find the processes of the service.
func (st *runSetUp) startService(ctx context.Context, t report.ModeSpec) (err error) {
	b := st.b
	if b.kept != nil {
		st.nginx, st.self = b.kept.process, b.kept.self
	} else if st.nginx, err = st.start(ctx, t); err != nil {
		return err
	}
	if !t.Sessions {
		st.sampler.LSProcesses = func() ([]int, error) { return b.Tree.Procs(string(st.pods.NGINX())) }
		return nil
	}
	if err := st.nginx.Adopt(b.FS); err != nil {
		return err
	}
	st.sampler.LSProcesses = func() ([]int, error) { return testbed.Descendants(b.FS, st.nginx.PID) }
	return nil
}

// close ends all processes of the run set-up and removes its cgroups.
func (st *runSetUp) close(_ context.Context, err error) error {
	err = errors.Join(err, st.agentRunner.Stop())
	st.work.Stop()
	if st.spinner != nil {
		st.spinner.Kill()
	}
	if err == nil && st.keepService() {
		return st.pods.ClearBatch(st.b.Host, st.b.Tree)
	}
	st.self.Close()
	if st.nginx != nil {
		st.b.service.Stop(st.nginx)
	}
	return errors.Join(err, testbed.Clear(st.b.Root, st.b.Host, st.b.Tree))
}

func (st *runSetUp) counter() harness.Counter  { return st.sampler }
func (st *runSetUp) service() *testbed.Process { return st.nginx }
func (st *runSetUp) exitError() error          { return st.work.ExitError() }

func (st *runSetUp) send(ctx context.Context, order load.Config) (harness.Measurement, error) {
	switch {
	case st.b.Client == harness.ClientWrk:
		return st.b.loadWrk(ctx, order)
	case st.b.Workloads.Self():
		return st.loadSelf(ctx, order)
	case st.b.Workloads.ByCommand():
		return harness.LoadCommand(ctx, st.b.Site, st.b.Workloads.Load, order)
	}
	return harness.LoadOpen(ctx, st.b.Site, order)
}

// progress waits for the progress report after the end of the measured part: the
// progress at the end is interpolated between two reports.
func (st *runSetUp) progress(m harness.Measurement) []progress {
	if st.work != nil && st.work.ExitError() == nil {
		time.Sleep(harness.SamplePeriod)
	}
	return st.between(m.From, m.To)
}

func (st *runSetUp) look(at time.Time) error { return st.work.Look(at) }

// between returns what each batch work did between two times.
func (st *runSetUp) between(from, to time.Time) (all []progress) {
	for _, w := range st.work {
		frames, media := w.ProgressBetween(from, to)
		all = append(all, progress{frames, media})
	}
	return all
}

// switcher changes the mode by writing the cgroups.
func (st *runSetUp) switcher(context.Context) (turns.Switcher, error) {
	p := st.pods
	l, err := turns.NewLocal(st.b.Site, st.sampler, turns.Groups{
		Workloads: p.Workloads(), Weighted: p.BatchGroups(), Frozen: p.JobPod(), Tested: p.Tested, Request: unit.CPUs(p.Tested.Len()),
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// check records the scheduler of the kernel, in kernel-qos, and what Tenon did.
func (st *runSetUp) check(ctx context.Context, t report.ModeSpec, _ harness.Measurement, r *colocation.Run) error {
	if st.b.kernelQOS {
		var why error
		if r.Traced, why = st.trace(ctx, r.Block); ctx.Err() != nil {
			return ctx.Err()
		} else if why != nil {
			r.Warnings = append(r.Warnings, "the kernel's record of its scheduler is missing: "+why.Error())
		}
	}
	var faults []string
	r.Writes, faults = st.agentRunner.Report()
	r.Discard(report.NotItsMode, faults...)
	if st.agentRunner != nil {
		if err := st.agentRunner.CheckMechanism(t.Mechanism); err != nil {
			r.Discard(report.NotItsMode, err.Error())
		}
	}
	if t.Tenon && len(r.Writes) == 0 {
		r.Warnings = append(r.Warnings, "Tenon changed nothing: the cgroups already had what it wants, so this mode is the same as "+string(report.Default))
	}
	return nil
}

// transcode returns the batch work of a mode. rate is how many seconds of media
// each process may read per second. If it is 0, there is no limit. Each ffmpeg
// reads its film in a loop.
func (b *machine) transcode(t report.ModeSpec, rate float64) work.Job {
	one := work.Transcode{Input: b.input, Threads: b.threads, ReadRate: rate}
	if b.ffmpegVersion.AtLeast(4, 4) && b.Duration < 10*time.Second {
		one.Period = harness.SamplePeriod
	}
	j := work.Job{Name: "ffmpeg", Slots: b.processes, Session: t.Sessions, Nice: t.Nice, SchedIdle: t.SchedIdle}
	if t.Mode == report.Switched { // the frames of its short windows are counted, and not interpolated
		if b.ffmpegVersion.AtLeast(4, 4) {
			one.Period = work.LookPeriod
		}
		j.Report = func(slot int) string { return filepath.Join(b.reports, fmt.Sprintf("ffmpeg-%d", slot)) }
	}
	j.Argv = func(slot int) []string {
		mine := one
		if j.Report != nil {
			mine.Report = j.Report(slot)
		}
		return append([]string{b.ffmpegPath}, mine.Args()...)
	}
	return j
}
