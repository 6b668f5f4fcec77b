// Package run runs the colocation experiment on this machine: nginx, ffmpeg and a
// load generator share CPUs in several modes. The kernel-qos experiment runs these
// programs with one isolation mechanism at a time.
package run

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// Run runs the colocation experiment. When it returns, even with an error,
// no process and no cgroup of the experiment is left. If it returns both an
// Outcome and an error, the Outcome describes the runs that had finished. If
// ctx ends, Run returns the error of ctx.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	c, err := c.WithDefaults()
	if err != nil {
		return harness.Outcome{}, err
	}
	b, err := newEnvironment(ctx, c)
	if err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	return b.series().Conduct(ctx)
}

// series returns the experiment as a series of blocks.
func (b *environment) series() *harness.Series[report.Mode, colocation.Run] {
	s := CommonSeries(b.Config, b.Site, &b.record)
	s.First, s.Calibrate, s.Run = b.Duration+b.Warmup()+2*time.Second, b.calibrate, b.run
	if b.kernelQOS {
		s.First += traceLength
	}
	return s
}

// CommonSeries returns the series without its runs. record is experiment.json.
func CommonSeries(c Config, site *testbed.Site, record *colocation.Experiment) *harness.Series[report.Mode, colocation.Run] {
	s := &harness.Series[report.Mode, colocation.Run]{
		Site: site, Cells: c.Modes, Blocks: c.Blocks, Most: c.MaxTime, Tell: tell, Open: c.open,
		Save:    func(r colocation.Run) error { return report.SaveRun(site.Given.Out, &r) },
		Void:    func(r colocation.Run) []string { return r.Void },
		Decides: func(blocks int) string { return harness.Decides(blocks, "--blocks, or --until-resolved") },
	}
	analyse := colocation.Analyse
	if c.kernelQOS {
		analyse = colocation.AnalyseKernelQOS
	}
	if c.UntilResolved {
		s.Resolved = func(runs []colocation.Run) bool { return analyse(*record, runs).IsResolved() }
	}
	return s
}

// open reads the data of the experiment.
func (c Config) open(dir string) (report.Findings, error) {
	if c.kernelQOS {
		return colocation.OpenKernelQOS(dir)
	}
	return colocation.Open(dir)
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
