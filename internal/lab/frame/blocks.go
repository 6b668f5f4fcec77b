// Package frame is what all experiments share: a series of blocks in which each
// mode is measured once, the load of a run, the counters that are read along
// it, and the rules that void it.
package frame

import (
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
	"tenon.sh/tenon/internal/lab/site"
)

// maxRepeats is how often the void runs of a block are tried again.
const maxRepeats = 2

// An Outcome is the folder of an experiment's data, and its result.
type Outcome struct {
	Dir      string
	Runs     int // finished, void ones included
	Findings report.Findings
}

// Report is the path of the HTML page.
func (o Outcome) Report() string { return filepath.Join(o.Dir, "report.html") }

// A Series is an experiment in blocks. In each block every cell is measured
// once, in random order, and gives a record; void records are measured again at
// the end of the block.
type Series[C, R any] struct {
	Site   *site.Site
	Cells  []C
	Blocks int           // 0: until resolved
	First  time.Duration // an estimate for a run before the first is timed
	Whole  time.Duration // the time of all blocks; 0: estimated from the runs
	Most   time.Duration // of the whole experiment, calibration included; 0: no limit

	// calibrate makes what stands in experiment.json, from the caveats that
	// there are already. lines say what it found.
	Calibrate func(ctx context.Context, caveats []string) (experiment any, lines []string, err error)
	// run measures a cell once; index counts runs from 1.
	Run  func(ctx context.Context, cell C, index, block int) (R, error)
	Save func(R) error
	Tell func(R) string   // describes a record in a line
	Void func(R) []string // why a record must not be used; empty: it counts
	// resolved ends the series early; nil: it does not.
	Resolved func([]R) bool
	Open     func(dir string) (report.Findings, error) // of the directory of the results

	records []R
	time    eta
	end     time.Time // zero: none
}

// Conduct begins the series, runs its blocks, leaves the site as it was, and
// makes the outcome of the records that there are.
func (s *Series[C, R]) Conduct(ctx context.Context) (Outcome, error) {
	if s.Most > 0 {
		s.end = time.Now().Add(s.Most)
	}
	err := s.begin(ctx)
	if err == nil {
		err = s.runBlocks(ctx)
	}
	err = errors.Join(site.Interrupted(ctx, err), s.Site.Close())
	if len(s.records) == 0 {
		return Outcome{}, err
	}
	o := Outcome{Dir: s.Site.Given.Out, Runs: len(s.records)}
	var buildErr error
	o.Findings, buildErr = report.Build(o.Dir, s.Open)
	return o, errors.Join(err, buildErr)
}

// begin claims the directory of the results, looks whether the machine is
// quiet, calibrates, and writes experiment.json.
func (s *Series[C, R]) begin(ctx context.Context) error {
	out, status := s.Site.Given.Out, s.Site.Status
	if err := s.Site.Given.Claim(); err != nil {
		return err
	}
	experiment, err := s.prepare(ctx)
	if err != nil {
		os.Remove(out) // if it is empty
		return err
	}
	status.Clear()
	return report.Create(out, experiment)
}

func (s *Series[C, R]) prepare(ctx context.Context) (any, error) {
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
	return experiment, nil
}

// runBlocks runs block after block until it is enough.
func (s *Series[C, R]) runBlocks(ctx context.Context) error {
	s.time.begun = time.Now()
	for block := 1; s.Blocks == 0 || block <= s.Blocks; block++ {
		if left := time.Until(s.end); !s.end.IsZero() && left < s.time.left(len(s.Cells), s.First) {
			s.Site.Status.Keep("stopped after %d blocks: another one does not fit into the time", block-1)
			return nil
		}
		if err := s.runBlock(ctx, block); err != nil {
			return err
		}
		if s.Resolved != nil && s.Resolved(s.records) {
			s.Site.Status.Keep("stopped after %d blocks: every claim is decided", block)
			return nil
		}
	}
	return nil
}

// runBlock runs every cell once, and void runs again at the end.
func (s *Series[C, R]) runBlock(ctx context.Context, block int) error {
	todo := Block(s.Cells, s.Site.Given.Seed, block)
	for try := 0; len(todo) > 0 && try <= maxRepeats; try++ {
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
		status.Now("block %d, run %d: %v", block, run, cell)
	case s.Blocks == 0:
		status.Now("block %d, run %d: %v, at most %s left", block, run, cell, clock(time.Until(s.end)))
	default:
		left := s.time.left(inBlock+(s.Blocks-block)*len(s.Cells), s.First)
		if s.Whole > 0 {
			left = max(s.Whole-time.Since(s.time.begun), 0)
		}
		status.Now("block %d of %d, run %d: %v, about %s left", block, s.Blocks, run, cell, clock(left))
	}
}

func (s *Series[C, R]) said(block int, cell C, r R, void []string) {
	text := fmt.Sprintf("block %d %-14v %s", block, cell, s.Tell(r))
	if len(void) > 0 {
		text += "  void: " + strings.Join(void, "; ")
	}
	s.Site.Status.Keep("%s", text)
}

// Block returns the cells of one block in the order in which they run: every
// cell once, shuffled. The order depends on seed and block alone, so an
// experiment can be repeated exactly, and one that is stopped early has run
// the same blocks as one that is not.
func Block[C any](cells []C, seed uint64, block int) []C {
	order := slices.Clone(cells)
	rng := rand.New(rand.NewPCG(seed, uint64(block)))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
