// Package lab runs experiments that show what Tenon does on this machine. The
// colocation experiment is the published one: nginx, ffmpeg and a load
// generator, really run, in several modes of sharing the CPUs between them.
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
	s, err := b.open(ctx)
	if err == nil {
		err = s.runBlocks(ctx)
	}
	err = errors.Join(interrupted(ctx, err), b.Close())
	if len(s.runs) == 0 {
		return Outcome{}, err
	}
	o := Outcome{Dir: c.Out, Runs: len(s.runs)}
	var buildErr error
	o.Result, buildErr = report.Build(c.Out)
	return o, errors.Join(err, buildErr)
}

// interrupted makes ctx's error of whatever its end has caused.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// A series of blocks, as far as it has got.
type session struct {
	b    *bench
	exp  report.Experiment
	runs []report.Run
	time eta
	end  time.Time // zero: none
}

// open calibrates and makes the directory of the results.
func (b *bench) open(ctx context.Context) (session, error) {
	s := session{b: b}
	if b.MaxTime > 0 {
		s.end = time.Now().Add(b.MaxTime)
	}
	if _, err := os.Stat(filepath.Join(b.Out, "experiment.json")); err == nil {
		return s, fmt.Errorf("--out %s: there is an experiment already, choose another directory", b.Out)
	}
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return s, fmt.Errorf("--out: %w", err)
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

// runBlocks runs block after block until it is enough.
func (s *session) runBlocks(ctx context.Context) error {
	s.time.begun = time.Now()
	for block := 1; s.b.Blocks == 0 || block <= s.b.Blocks; block++ {
		if left := time.Until(s.end); !s.end.IsZero() && left < s.time.left(len(s.b.Modes), s.guess()) {
			s.b.status.Keep("stopped after %d blocks: another one does not fit into %v", block-1, s.b.MaxTime)
			return nil
		}
		if err := s.runBlock(ctx, block); err != nil {
			return err
		}
		if s.b.UntilResolved && report.Resolved(report.Analyse(s.exp, s.runs)) {
			s.b.status.Keep("stopped after %d blocks: every claim is decided", block)
			return nil
		}
	}
	return nil
}

// runBlock runs every mode once, and void runs again at the end.
func (s *session) runBlock(ctx context.Context, block int) error {
	todo := Block(s.b.Modes, s.b.Seed, block)
	for try := 0; len(todo) > 0 && try <= maxRepeats; try++ {
		var again []report.Mode
		for i, mode := range todo {
			s.announce(block, mode, len(todo)-i)
			r, err := s.b.run(ctx, mode, len(s.runs)+1, block)
			if err == nil {
				err = report.SaveRun(s.b.Out, r)
			}
			if err != nil {
				return err
			}
			s.runs = append(s.runs, r)
			s.time.done++
			s.tell(r)
			if len(r.Void) > 0 {
				again = append(again, mode)
			}
		}
		if todo = again; s.b.once {
			return nil
		}
	}
	return nil
}

// guess is how long a run may take, before any has been timed.
func (s *session) guess() time.Duration {
	return s.b.Duration + s.b.warmup() + 2*time.Second
}

func (s *session) announce(block int, mode report.Mode, inBlock int) {
	if s.b.Blocks == 0 {
		rest := ""
		if !s.end.IsZero() {
			rest = fmt.Sprintf(", at most %s left", clock(time.Until(s.end)))
		}
		s.b.status.Now("block %d, run %d: %s%s", block, len(s.runs)+1, mode, rest)
		return
	}
	left := inBlock + (s.b.Blocks-block)*len(s.b.Modes)
	s.b.status.Now("block %d of %d, run %d: %s, about %s left", block, s.b.Blocks, len(s.runs)+1, mode, clock(s.time.left(left, s.guess())))
}

func (s *session) tell(r report.Run) {
	text := fmt.Sprintf("block %d %-14s P50 %5.0f µs  P99 %6.0f µs  CPU %5.1f %%", r.Block, r.Mode, r.Latency.P50, r.Latency.P99, r.CPUPercent)
	if traitsOf(r.Mode).batch {
		text += fmt.Sprintf("  %6.1f frames/s", r.FramesPerS)
	}
	for i, v := range r.Void {
		if i == 0 {
			text += "  void: " + v
		} else {
			text += "; " + v
		}
	}
	s.b.status.Keep("%s", text)
}
