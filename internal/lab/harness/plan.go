package harness

import (
	"fmt"
	"math"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// LeastBlocks is the number of blocks that a verdict needs.
func LeastBlocks() int { return report.Experiment{}.Rule(1).Least }

// Decides says what a planned number of blocks cannot decide. It returns "" if
// the number alone rules no claim out. flags names what gives more blocks.
func Decides(blocks int, flags string) string {
	rule, given := report.Experiment{}.Rule(blocks), textlayout.Plural(blocks, "block", "blocks")
	if blocks < rule.Least {
		return fmt.Sprintf("%s can decide nothing: the report will have intervals and no verdict. A verdict needs %d blocks (%s)", given, rule.Least, flags)
	}
	factor, all := math.Exp(rule.Allowance(blocks)), blocks
	for rule.Allowance(all) > 0 {
		all++
	}
	if all == blocks {
		return ""
	}
	return fmt.Sprintf("%s can decide large differences only, by a factor above %.2f. Smaller ones need %d blocks or more (%s)", given, factor, all, flags)
}

// plan says before the first run how long the blocks take, and what they cannot
// decide.
func (s *Series[C, R]) plan() []string {
	block := s.time.remaining(len(s.Cells), s.First)
	blocks, text := s.Blocks, fmt.Sprintf("each %s has %s and takes about %s", s.called(), textlayout.Plural(len(s.Cells), "run", "runs"), clock(block))
	if blocks > 0 {
		whole := block * time.Duration(blocks)
		if s.Whole > 0 {
			whole = s.Whole
		}
		block = whole / time.Duration(blocks)
		text = fmt.Sprintf("%s of %s: about %s, and longer if runs are void", s.blocks(blocks), textlayout.Plural(len(s.Cells), "run", "runs"), clock(whole))
	}
	if !s.end.IsZero() {
		left := max(time.Until(s.end), 0)
		text += ", at most " + clock(left)
		if fit := int(left / max(block, 1)); blocks == 0 || fit < blocks {
			blocks = fit
			text += fmt.Sprintf(": time for about %s", s.blocks(fit))
		}
	}
	lines := []string{text}
	if s.Decides != nil && (blocks > 0 || !s.end.IsZero()) {
		if text := s.Decides(blocks); text != "" {
			lines = append(lines, text)
		}
	}
	return lines
}
