package lab

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/report"
)

// A series is an experiment in blocks, as far as it has got.
type series struct {
	site   *site
	exp    report.Experiment
	blocks int           // 0: until resolved
	first  time.Duration // what a run may take, before any has been timed
	end    time.Time     // zero: none
	// untilResolved ends the series when every claim is decided.
	untilResolved bool
	// run measures one mode once, and tell describes the run in a line.
	run  func(ctx context.Context, mode report.Mode, index, block int) (report.Run, error)
	tell func(report.Run) string

	runs []report.Run
	time eta
}

// runBlocks runs block after block until it is enough.
func (s *series) runBlocks(ctx context.Context) error {
	s.time.begun = time.Now()
	for block := 1; s.blocks == 0 || block <= s.blocks; block++ {
		if left := time.Until(s.end); !s.end.IsZero() && left < s.time.left(len(s.exp.Modes), s.first) {
			s.site.status.Keep("stopped after %d blocks: another one does not fit into the time", block-1)
			return nil
		}
		if err := s.runBlock(ctx, block); err != nil {
			return err
		}
		if s.untilResolved && report.Resolved(report.Analyse(s.exp, s.runs)) {
			s.site.status.Keep("stopped after %d blocks: every claim is decided", block)
			return nil
		}
	}
	return nil
}

// runBlock runs every mode once, and void runs again at the end.
func (s *series) runBlock(ctx context.Context, block int) error {
	todo := Block(s.exp.Modes, s.exp.Seed, block)
	for try := 0; len(todo) > 0 && try <= maxRepeats; try++ {
		var again []report.Mode
		for i, mode := range todo {
			s.announce(block, mode, len(todo)-i)
			r, err := s.run(ctx, mode, len(s.runs)+1, block)
			if err == nil {
				err = report.SaveRun(s.site.setting.Out, r)
			}
			if err != nil {
				return err
			}
			s.runs = append(s.runs, r)
			s.time.done++
			s.said(r)
			if len(r.Void) > 0 {
				again = append(again, mode)
			}
		}
		if todo = again; s.site.setting.Once {
			return nil
		}
	}
	return nil
}

func (s *series) announce(block int, mode report.Mode, inBlock int) {
	if s.blocks == 0 {
		rest := ""
		if !s.end.IsZero() {
			rest = fmt.Sprintf(", at most %s left", clock(time.Until(s.end)))
		}
		s.site.status.Now("block %d, run %d: %s%s", block, len(s.runs)+1, mode, rest)
		return
	}
	left := inBlock + (s.blocks-block)*len(s.exp.Modes)
	s.site.status.Now("block %d of %d, run %d: %s, about %s left", block, s.blocks, len(s.runs)+1, mode, clock(s.time.left(left, s.first)))
}

func (s *series) said(r report.Run) {
	text := fmt.Sprintf("block %d %-14s %s", r.Block, r.Mode, s.tell(r))
	for i, v := range r.Void {
		if i == 0 {
			text += "  void: " + v
		} else {
			text += "; " + v
		}
	}
	s.site.status.Keep("%s", text)
}
