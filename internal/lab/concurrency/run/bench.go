package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
)

// A bench is the experiment after its set-up.
type bench struct {
	Config
	*testbed.Site
	machine machine
	task    task
	host    string  // name of this machine
	whole   float64 // work of a whole job; 0: a job is one unit

	runs     []Cell
	refused  []string
	versions map[string]string
}

// Run runs the experiment. When it returns, even with an error, no process and
// no cgroup of the experiment is left. If it returns both an Outcome and an
// error, the Outcome has the runs that had ended before the error.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	c, err := c.OrDefaults()
	if err != nil {
		return harness.Outcome{}, err
	}
	b, err := newBench(ctx, c)
	if err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	s := b.Series(b.Site, b.runs, b.measure)
	s.First, s.Calibrate = b.Warmup+b.Window+1500*time.Millisecond, b.calibrate
	return s.Conduct(ctx)
}

// newBench prepares the experiment. It chooses the cells that this machine can
// run, and finds the program. If it fails, it restores the machine.
func newBench(ctx context.Context, c Config) (_ *bench, err error) {
	b := &bench{Config: c, versions: map[string]string{}}
	if b.Site, err = testbed.Enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.host, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("read the name of this machine: %w", err)
	}
	memory, err := b.FS.MemInfo()
	if err != nil {
		return nil, err
	}
	b.machine = machineOf(b.Topology, b.Place.Tested, memory.Total)
	if b.runs, b.refused = c.cells(b.machine); len(b.runs) == 0 {
		return nil, fmt.Errorf("this machine can run none of the cells: %w", errors.Join(textErrors(b.refused)...))
	}
	if len(c.Argv) > 0 {
		b.task = command{c.Argv}
		return b, nil
	}
	t := transcode{height: c.Height, input: c.Input}
	if t.height == 0 {
		t.height = HeightFor(b.Place.Tested.Len())
	}
	if t.ffmpeg, err = work.FFmpegProgram.Find(); err != nil {
		return nil, err
	}
	version, text, err := work.FFmpegProgram.Ask(ctx, t.ffmpeg)
	if err != nil {
		return nil, err
	}
	b.versions["ffmpeg"], t.period = text, version.AtLeast(4, 4)
	if err = work.CheckEncoder(ctx, t.ffmpeg); err != nil {
		return nil, err
	}
	if t.input == "" {
		t.input, err = work.Clip(ctx, t.ffmpeg, c.CacheDir, func() { b.Status.Now("rendering the clip, once for this machine") })
	} else if _, err = os.Stat(t.input); err == nil {
		t.input, err = filepath.Abs(t.input)
	}
	if err != nil {
		return nil, fmt.Errorf("--input: %w", err)
	}
	t.name, b.task = filepath.Base(t.input), t
	return b, nil
}

func textErrors(all []string) []error {
	list := make([]error, len(all))
	for i, s := range all {
		list[i] = errors.New(s)
	}
	return list
}

// calibrate runs one job alone to choose how much work a job has.
func (b *bench) calibrate(ctx context.Context, caveats []string) (report.Headed, []string, error) {
	b.Status.Now("calibrating: one job alone")
	var lines []string
	if b.task.reports() {
		endless := *b
		endless.Fill = Window
		r, err := endless.measure(ctx, Reference, 0, 0)
		if err != nil {
			return nil, nil, err
		}
		row := r.Rows[0]
		rate := row.Extra.Work.Or(0) / row.Extra.CPUSeconds.Or(0)
		if !(rate > 0) {
			return nil, nil, fmt.Errorf("a job alone has done no work in %v: is %s a film?", b.Window, b.task.source())
		}
		b.whole = max(float64(int(rate*b.Work.Seconds())), 1)
		lines = append(lines, fmt.Sprintf("a job is %.0f frames: about %v of CPU time, alone; it uses %.2f of %d CPUs", b.whole, b.Work, row.Extra.CPUSeconds.Or(0)/row.Duration().Seconds(), b.Place.Tested.Len()))
	} else {
		one := *b
		one.Fill = Wave
		r, err := one.measure(ctx, Reference, 0, 0)
		if err != nil {
			return nil, nil, err
		}
		row := r.Rows[0]
		if row.Extra.Void != "" {
			return nil, nil, fmt.Errorf("a job alone failed: %s", row.Extra.Void)
		}
		lines = append(lines, fmt.Sprintf("a job alone takes %.2f s and %.2f s of CPU time", row.Duration().Seconds(), row.Extra.CPUSeconds.Or(0)))
	}
	lines = append(lines, fmt.Sprintf("%d cells in %d blocks, at most %v", len(b.runs), b.Blocks, b.MaxTime))
	return b.experiment(caveats), lines, nil
}

func (b *bench) experiment(caveats []string) *concurrency.Experiment {
	machine := testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	machine.Mechanisms = nil
	cores := map[node.CoreID]bool{}
	for _, c := range b.Topology.CPUs {
		if b.Place.Tested.Has(c.ID) {
			cores[c.Core] = true
		}
	}
	caveats = append(caveats, "the lab itself runs on the tested CPUs, and reads the counters five times a second")
	job := b.task
	if t, is := job.(transcode); is {
		t.input = t.name // the directory may name the user
		job = t
	}
	e := &concurrency.Experiment{
		Header: b.Header(concurrency.Kind, nil, b.Blocks), Node: concurrency.Node{CPUs: b.Place.Tested.Len(), Cores: len(cores)},
		Fill: string(b.Fill), Window: b.Window, Warmup: b.Warmup, Job: job.argv(0, 0, b.whole), JobWork: b.whole,
	}
	e.Refused, e.Machine, e.Versions, e.Caveats = b.refused, machine, b.versions, caveats
	return e
}

// ownTime is the CPU time of this process.
func ownTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail: the argument is valid
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
