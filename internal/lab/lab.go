// Package lab runs experiments that show what Tenon does on this machine. The
// colocation experiment is the published one: nginx, ffmpeg and a load
// generator, really run, in several modes of sharing the CPUs between them; the
// kernel-qos experiment runs them with one rung of the isolation ladder at a
// time. The memory experiment lets nginx and a program that is greedy for memory
// share a bounded amount of it; the reaction experiment measures how long
// tenond takes to answer a step of load.
//
// A run is one mode measured once. A block is every mode once, in random
// order; blocks are repeated, and package report compares modes within blocks.
// Raw data is written run by run, so whatever ends an experiment early leaves
// the finished runs, and any report can be made again from them.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/lab/report"
)

// maxRepeats is how often the void runs of a block are tried again.
const maxRepeats = 2

// An Outcome is where an experiment's data is, and what it showed.
type Outcome struct {
	Dir    string
	Runs   int // finished, void ones included
	Result report.Result
}

// Report is the path of the HTML page.
func (o Outcome) Report() string { return filepath.Join(o.Dir, "report.html") }

// Colocate runs the colocation experiment. When it returns, no process and no
// cgroup of the experiment is left, whatever the error. An Outcome with runs
// is good even beside an error: it was made from the runs that had finished.
// If ctx ended the experiment, the error is ctx's.
func Colocate(ctx context.Context, c Config) (Outcome, error) {
	c, err := c.orDefaults()
	if err != nil {
		return Outcome{}, err
	}
	b, err := set(ctx, c)
	if err != nil {
		return Outcome{}, interrupted(ctx, err)
	}
	return conduct(ctx, b)
}

// A conductor is an experiment in blocks that is set up.
type conductor interface {
	open(ctx context.Context) (*series, error)
	Close() error
}

// conduct runs the blocks of an experiment, and makes the outcome of the runs
// that there are.
func conduct(ctx context.Context, b conductor) (Outcome, error) {
	s, err := b.open(ctx)
	if err == nil {
		err = s.runBlocks(ctx)
	}
	return s.close(interrupted(ctx, err), b.Close())
}

// close makes the outcome of the runs that there are.
func (s *series) close(errs ...error) (Outcome, error) {
	err := errors.Join(errs...)
	if len(s.runs) == 0 {
		return Outcome{}, err
	}
	o := Outcome{Dir: s.site.setting.Out, Runs: len(s.runs)}
	var buildErr error
	o.Result, buildErr = report.Build(o.Dir)
	return o, errors.Join(err, buildErr)
}

// open calibrates and makes the directory of the results.
func (b *bench) open(ctx context.Context) (*series, error) {
	s := &series{
		site: b.site, blocks: b.Blocks, first: b.Duration + b.warmup() + 2*time.Second,
		untilResolved: b.UntilResolved, run: b.run, tell: tell,
	}
	if b.ladder {
		s.first += traceLength
	}
	if b.MaxTime > 0 {
		s.end = time.Now().Add(b.MaxTime)
	}
	if err := b.Setting.claim(); err != nil {
		return s, err
	}
	solo, lines, caveats, err := b.calibrate(ctx)
	if err != nil {
		os.Remove(b.Out) // if it is empty
		return s, err
	}
	for _, l := range lines {
		b.status.Keep("%s", l)
	}
	s.exp = b.experiment(solo, lines, caveats)
	return s, report.Create(b.Out, s.exp)
}

func tell(r report.Run) string {
	text := fmt.Sprintf("P50 %5.0f µs  P99 %6.0f µs  CPU %5.1f %%", r.Latency.P50, r.Latency.P99, r.CPUPercent)
	if traitsOf(r.Mode).batch {
		text += fmt.Sprintf("  %6.1f frames/s", r.FramesPerS)
	}
	return text
}
