// Package run runs the colocation experiment: nginx, ffmpeg and a load generator
// share CPUs in several modes, on this machine or on a node of a Kubernetes cluster
// that has Tenon. The kernel-qos experiment runs these programs with one isolation
// mechanism at a time.
package run

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/turns"
	"tenon.sh/tenon/internal/lab/work"
)

// A site is where the experiment runs, after its set-up: this machine, or a node of
// a cluster. The experiment is the same on both.
type site interface {
	common() *bench
	// prepare finds out which CPUs are tested, and how much batch work fills them. It
	// is called before anything is measured.
	prepare(ctx context.Context) error
	// target is the URL of the service, or says what takes its place.
	target() string
	// overhead is the expected length of a run beside its warm-up and measured part.
	overhead() time.Duration
	// least is the length of the shortest useful measurement.
	least() time.Duration
	// describe adds the facts that only the site knows.
	describe(*colocation.Experiment)
	// Others watches for so long what other programs do on the tested machine. Nothing
	// of the experiment runs there meanwhile.
	Others(ctx context.Context, watch time.Duration) (report.Others, error)
	// setUp starts a mode. rate limits how fast each process of the batch work reads
	// its input, in seconds of media per second; 0: no limit.
	setUp(ctx context.Context, t report.ModeSpec, rate float64) (stage, error)
}

// A stage is one mode in which everything runs, ready to be measured.
type stage interface {
	counter() harness.Counter
	// service is the process whose end ends a measurement.
	service() *testbed.Process
	// send sends a load to the service.
	send(ctx context.Context, order load.Config) (harness.Measurement, error)
	// progress returns what each batch work did in the measured part.
	progress(m harness.Measurement) []progress
	// between returns what each batch work did between two times.
	between(from, to time.Time) []progress
	// look reads what the batch work has done until the end of a turn.
	look(at time.Time) error
	// switcher returns what changes the mode while everything runs.
	switcher(ctx context.Context) (turns.Switcher, error)
	// exitError returns an error if a batch process has ended.
	exitError() error
	// check adds what only the site knows to a run, such as the reasons why the run
	// does not show its mode.
	check(ctx context.Context, t report.ModeSpec, m harness.Measurement, r *colocation.Run) error
	// close ends the mode, even if ctx has ended. Nothing of it is left.
	close(ctx context.Context, err error) error
}

// A progress is what one batch work did.
type progress struct {
	work  float64 // in its unit; of ffmpeg, the number of frames
	media time.Duration
}

// A bench is the part of the experiment that both sites have.
type bench struct {
	Config
	*testbed.Site
	versions map[string]string
	caveats  []string
	skipped  []colocation.Skipped

	wrkPath            string
	processes, threads int         // of ffmpeg
	works              []work.Work // empty: the only batch work is ffmpeg
	solo               []float64   // rate of each work when it runs alone

	// unsure is how far the times of readings may be from those of the load, if the
	// modes are switched.
	unsure time.Duration

	before stopped // zero: the experiment begins

	load   harness.LoadSpec
	pacer  pacer
	record colocation.Experiment
}

func (b *bench) common() *bench { return b }

// findWrk finds wrk if it is the client.
func (b *bench) findWrk() (err error) {
	if b.Client == harness.ClientWrk {
		b.wrkPath, err = work.WrkProgram.Find()
	}
	return err
}

// Run runs the colocation experiment. When it returns, even with an error, no
// process, cgroup, object or strategy of the experiment is left. If it returns both
// an Outcome and an error, the Outcome describes the runs that had finished. If ctx
// ends, Run returns the error of ctx.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	c, err := c.WithDefaults()
	if err != nil {
		return harness.Outcome{}, err
	}
	var before stopped
	if c.Resume {
		if before, err = readStopped(c); err != nil {
			return harness.Outcome{}, err
		}
	}
	s, err := harness.Enter(ctx, c, c.Pods != nil, enterMachine, enterPods)
	if err != nil {
		return harness.Outcome{}, err
	}
	b := s.common()
	b.before = before
	b.load = harness.LoadSpec{URL: s.target(), Duration: b.Duration, Warmup: b.Warmup(), Seed: b.Seed, Connections: b.connections()}
	series := &harness.Series[report.Mode, colocation.Run]{
		Site: b.Site, Cells: b.Modes, Blocks: b.Blocks, Most: b.MaxTime, First: b.Duration + b.Warmup() + s.overhead(), Tell: tell, Open: c.open,
		Calibrate: func(ctx context.Context, caveats []string) (report.Headed, []string, error) {
			b.caveats = caveats
			lines, err := b.calibrate(ctx, s)
			return &b.record, lines, err
		},
		Run: func(ctx context.Context, mode report.Mode, index, block int) (r colocation.Run, err error) {
			r.Run = report.Run{Index: index, Block: block, Mode: mode, Started: time.Now(), PSICPU: -1}
			if err = b.run(ctx, s, mode.Spec(), &r); err != nil {
				err = fmt.Errorf("mode %s: %w", mode, err)
			}
			return r, err
		},
		Save:    func(r colocation.Run) error { return report.SaveRun(b.Out, &r) },
		Void:    func(r colocation.Run) []string { return r.Void },
		Decides: func(blocks int) string { return harness.Decides(blocks, "--blocks, or --until-resolved") },
		Resumed: before.runs, From: before.next(),
	}
	analyse := colocation.Analyse
	if c.kernelQOS {
		analyse = colocation.AnalyseKernelQOS
	}
	switch {
	case c.switches():
		b.switchModes(series, s)
	case c.UntilResolved:
		series.Resolved = func(runs []colocation.Run) bool { return analyse(b.record, runs).IsResolved() }
	}
	return series.Conduct(ctx)
}

// KernelQOS runs the colocation experiment with each isolation mechanism that this
// node supports, one at a time. It also traces what runs on the two siblings of a
// core. The files and the result have the same form as those of Run.
func KernelQOS(ctx context.Context, c Config) (harness.Outcome, error) {
	c.kernelQOS = true
	return Run(ctx, c)
}

// open reads the data of the experiment.
func (c Config) open(dir string) (report.Findings, error) {
	if c.kernelQOS {
		return colocation.OpenKernelQOS(dir)
	}
	return colocation.Open(dir)
}

// run measures a mode.
func (b *bench) run(ctx context.Context, s site, t report.ModeSpec, r *colocation.Run) (err error) {
	var rate float64
	if t.Paced {
		rate = b.pacer.Rate()
	}
	st, err := s.setUp(ctx, t, rate)
	if err != nil {
		return err
	}
	defer func() { err = st.close(ctx, err) }()
	m, err := b.design(ctx, st, t, r.Block)
	if err != nil {
		return err
	}
	if err := st.check(ctx, t, m, r); err != nil {
		return err
	}
	if err := st.exitError(); err != nil {
		r.Discard(report.NotItsMode, err.Error())
	}
	var done float64
	r.Work, done, _ = b.done(st, m)
	r.Frames, r.FramesPerS = done, done/m.Used.Wall
	harness.Fill(&r.Run, m)
	m.Judge(&r.Run, b.StealPercent, b.Duration)
	b.pacer.Judge(&r.Run, t)
	return nil
}

// design measures a mode that runs: it says what happens within a run. In each mode
// the load of the block comes; only batch work that runs alone has none.
func (b *bench) design(ctx context.Context, st stage, t report.ModeSpec, block int) (harness.Measurement, error) {
	if t.Alone {
		return harness.WatchAlone(ctx, st.counter(), b.Warmup(), b.Duration)
	}
	return measure(ctx, st, b.load.InBlock(block))
}

// measure sends a load, and counts meanwhile.
func measure(ctx context.Context, st stage, order load.Config) (harness.Measurement, error) {
	return harness.Watch(ctx, st.counter(), st.service(), func(ctx context.Context) (harness.Measurement, error) { return st.send(ctx, order) })
}

// done returns what the batch work did in the measured part. total is the number of
// frames. If the user brings workloads, each[i] is the rate of work i per second.
// total is then the mean of relative rates: each[i] divided by the rate of work i
// alone.
func (b *bench) done(st stage, m harness.Measurement) (each []float64, total float64, media time.Duration) {
	return b.rates(st.progress(m), m.Used.Wall)
}

// rates returns what the batch work did in so many seconds, as done does.
func (b *bench) rates(all []progress, seconds float64) (each []float64, total float64, media time.Duration) {
	for i, p := range all {
		media += p.media
		if len(b.works) == 0 {
			total += p.work
			continue
		}
		each = append(each, p.work/seconds)
		if i < len(b.solo) && b.solo[i] > 0 {
			total += p.work / b.solo[i] / float64(len(all))
		}
	}
	return each, total, media
}

// connections returns the number of connections that the client opens.
func (b *bench) connections() int {
	switch {
	case b.Connections > 0:
		return b.Connections
	case b.Client == harness.ClientWrk && b.Pods != nil:
		return publishedConnections // with nodes of each size, as the document says
	case b.Client == harness.ClientWrk:
		// wrk needs at least one connection for each of its threads.
		return max(publishedConnections*b.Place.Tested.Len()/104, 2, b.Place.Client.Len())
	}
	return b.Workloads.Connections()
}

func tell(r colocation.Run) string {
	text := fmt.Sprintf("P50 %5.0f µs  P99 %6.0f µs  CPU %5.1f %%", r.Latency.P50, r.Latency.P99, r.CPUPercent)
	switch {
	case r.Mode.Spec().Batch && r.Work != nil:
		text += fmt.Sprintf("  BE %5.1f %% of alone", 100*r.FramesPerS)
	case r.Mode.Spec().Batch:
		text += fmt.Sprintf("  %6.1f frames/s", r.FramesPerS)
	}
	return text
}
