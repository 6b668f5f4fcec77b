// Package harness contains what all experiments have in common: blocks, the
// load, the counters, and the rules for void runs. An experiment is a series of
// blocks that measure each mode once. The counters are read during a run.
package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// maxRepeats is the maximum number of times that the void runs of a block are
// repeated.
const maxRepeats = 2

// An Outcome holds the result of an experiment, and names the folder of its
// data.
type Outcome struct {
	Dir      string
	Runs     int             // number of finished runs, including void ones
	Findings report.Findings // nil if there are no runs, or if the error says why they cannot be read
}

// Report is the path of the HTML page.
func (o Outcome) Report() string { return filepath.Join(o.Dir, "report.html") }

// A Series is an experiment that consists of blocks. Each block measures every
// cell (a mode, or other conditions) once, in random order, and makes a record of
// it. At the end of the block, the cells with a void record are measured again.
type Series[C, R any] struct {
	Site  *testbed.Site
	Cells []C
	// Refused lists the cells that cannot run, with the reasons. They stand in
	// experiment.json.
	Refused []string
	Blocks  int           // number of blocks; 0: until Resolved returns true
	First   time.Duration // estimated length of a run before the first run has been timed
	Whole   time.Duration // length of all blocks; 0: estimated from the runs
	Most    time.Duration // maximum length of the whole experiment with its calibration; 0: no limit
	// Decides says what a planned number of blocks cannot decide, or "". If it
	// is nil, nothing is said.
	Decides func(blocks int) string
	// Called is what a block is called; the default is "block".
	Called string
	// Resumed are the records of an experiment that was stopped and goes on. From is its
	// first block that is still to run; 0: the first.
	Resumed []R
	From    int
	// InOrder runs the cells of each block in the given order instead of a
	// random one.
	InOrder bool

	// Calibrate returns the content of experiment.json, including the caveats
	// that were found so far. lines are for the user: they describe what
	// Calibrate found.
	Calibrate func(ctx context.Context, caveats []string) (experiment report.Headed, lines []string, err error)
	// Run measures a cell once. index counts runs from 1.
	Run  func(ctx context.Context, cell C, index, block int) (R, error)
	Save func(R) error
	Tell func(R) string   // describes a record in one line
	Void func(R) []string // reasons that void a record; empty if the record is valid
	// Resolved ends the series early when it returns true. If it is nil,
	// nothing ends the series early.
	Resolved func([]R) bool
	Open     func(dir string) (report.Findings, error) // loads the results in a directory

	records []R
	record  report.Headed // experiment.json
	time    eta
	end     time.Time // zero: no limit
}

// Conduct prepares the series, runs its blocks, and restores the machine. It
// then makes the outcome from the records that exist by then.
func (s *Series[C, R]) Conduct(ctx context.Context) (Outcome, error) {
	if s.Most > 0 {
		s.end = time.Now().Add(s.Most)
	}
	s.records = slices.Clone(s.Resumed)
	err := s.begin(ctx)
	if err == nil {
		var end report.End
		end, err = s.runBlocks(ctx)
		switch {
		case ctx.Err() != nil:
			end = report.EndHand
		case err != nil:
			end = report.EndFailed
		}
		s.record.Head().Ended = end
		err = errors.Join(err, report.Create(s.Site.Given.Out, s.record))
	}
	err = errors.Join(testbed.InterruptError(ctx, err), s.Site.Close())
	if len(s.records) == 0 {
		return Outcome{}, err
	}
	o := Outcome{Dir: s.Site.Given.Out, Runs: len(s.records)}
	var buildErr error
	o.Findings, buildErr = report.Build(o.Dir, s.Open)
	return o, errors.Join(err, buildErr)
}

// begin claims the directory of the results, checks that the machine is quiet,
// calibrates, and writes experiment.json.
func (s *Series[C, R]) begin(ctx context.Context) error {
	if len(s.Cells) == 0 {
		return fmt.Errorf("none of the cells can run here:\n%s", strings.Join(s.Refused, "\n"))
	}
	out, status := s.Site.Given.Out, s.Site.Status
	if err := s.Site.Given.Claim(); err != nil {
		return err
	}
	var err error
	if s.record, err = s.prepare(ctx); err != nil {
		os.Remove(out) // fails if it is not empty
		return err
	}
	status.Clear()
	return report.Create(out, s.record)
}

func (s *Series[C, R]) prepare(ctx context.Context) (report.Headed, error) {
	status := s.Site.Status
	status.Now("calibrating: is the machine quiet")
	caveats, err := s.Site.Watch(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range caveats {
		status.Keep("%s", c)
	}
	experiment, lines, err := s.Calibrate(ctx, caveats)
	if err != nil {
		return nil, err
	}
	for _, l := range lines {
		status.Keep("%s", l)
	}
	if len(s.Refused) > 0 {
		experiment.Head().Refused = s.Refused
	}
	for _, why := range experiment.Head().Refused {
		status.Keep("left out: %s", why)
	}
	return experiment, nil
}

// runBlocks runs blocks until the series must end, because of the number of
// blocks, the time limit or Resolved.
func (s *Series[C, R]) runBlocks(ctx context.Context) (report.End, error) {
	s.time.begun = time.Now()
	for _, l := range s.plan() {
		s.Site.Status.Keep("%s", l)
	}
	if s.From > 1 {
		s.Site.Status.Keep("goes on after %s", s.blocks(s.From-1))
	}
	for block := max(s.From, 1); s.Blocks == 0 || block <= s.Blocks; block++ {
		if left := time.Until(s.end); !s.end.IsZero() && left < s.time.remaining(len(s.Cells), s.First) {
			s.Site.Status.Keep("stopped after %s: another one does not fit into the time", s.blocks(block-1))
			return report.EndTime, nil
		}
		if err := s.runBlock(ctx, block); err != nil {
			return "", err
		}
		if s.Resolved != nil && s.Resolved(s.records) {
			s.Site.Status.Keep("stopped after %s, at a planned look", s.blocks(block))
			return report.EndPlanned, nil
		}
	}
	return report.EndPlanned, nil
}

// runBlock runs every cell once, and then repeats the void runs.
func (s *Series[C, R]) runBlock(ctx context.Context, block int) error {
	todo := Block(s.Cells, s.Site.Given.Seed, block)
	if s.InOrder {
		todo = slices.Clone(s.Cells)
	}
	for try := 0; len(todo) > 0 && try <= maxRepeats; try++ {
		if try > 0 && !s.end.IsZero() && time.Now().After(s.end) {
			s.Site.Status.Keep("%d void runs of %s %d are not repeated: the time is over", len(todo), s.called(), block)
			return nil
		}
		var again []C
		for i, cell := range todo {
			s.announce(block, cell, len(todo)-i)
			r, err := s.Run(ctx, cell, len(s.records)+1, block)
			if err == nil {
				err = s.Save(r)
			}
			if err != nil {
				return err
			}
			s.records = append(s.records, r)
			s.time.done++
			void := s.Void(r)
			s.said(block, cell, r, void)
			if len(void) > 0 {
				again = append(again, cell)
			}
		}
		if todo = again; s.Site.Given.Once {
			return nil
		}
	}
	return nil
}

func (s *Series[C, R]) announce(block int, cell C, inBlock int) {
	run, status := len(s.records)+1, s.Site.Status
	switch {
	case s.Blocks == 0 && s.end.IsZero():
		status.Now("%s %d, run %d: %v", s.called(), block, run, cell)
	case s.Blocks == 0:
		status.Now("%s %d, run %d: %v, at most %s left", s.called(), block, run, cell, clock(time.Until(s.end)))
	default:
		left := s.time.remaining(inBlock+(s.Blocks-block)*len(s.Cells), s.First)
		if s.Whole > 0 {
			left = max(s.Whole-time.Since(s.time.begun), 0)
		}
		status.Now("%s %d of %d, run %d: %v, about %s left", s.called(), block, s.Blocks, run, cell, clock(left))
	}
}

func (s *Series[C, R]) said(block int, cell C, r R, void []string) {
	text := fmt.Sprintf("%s %d %-14v %s", s.called(), block, cell, s.Tell(r))
	if len(void) > 0 {
		text += "  void: " + strings.Join(void, "; ")
	}
	s.Site.Status.Keep("%s", text)
}

// called returns what a block is called.
func (s *Series[C, R]) called() string { return cmp.Or(s.Called, "block") }

// blocks names a number of blocks.
func (s *Series[C, R]) blocks(n int) string { return textlayout.Plural(n, s.called(), s.called()+"s") }

// Block returns every cell once, in the random order in which the cells of a
// block run. The order depends only on seed and block. Therefore an experiment
// can be repeated exactly, and one that stops early has the same first blocks
// as a complete one.
func Block[C any](cells []C, seed uint64, block int) []C {
	order := slices.Clone(cells)
	rng := rand.New(rand.NewPCG(seed, uint64(block)))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
