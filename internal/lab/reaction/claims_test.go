package reaction

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// inventBlocks invents an experiment with steps in mode events, in blocks of
// equal size. slow says in which steps of which blocks, both from 0, tenond
// responds 150 ms later.
func inventBlocks(blocks, steps int, slow func(block, step int) bool) (Experiment, []Step) {
	e, invented := inventExperiment(blocks * steps)
	e.Modes, e.Blocks = []report.Mode{report.Events}, blocks
	var all []Step
	for _, s := range invented {
		if s.Mode != report.Events {
			continue
		}
		block, step := len(all)/steps, len(all)%steps
		s.Block = block + 1
		if slow(block, step) {
			s.Ticks[0].Ended += 150 * ms
		}
		all = append(all, s)
	}
	return e, all
}

// TestRequirementIsJudgedByBlocks judges steps of which those of a block come
// from one start of tenond.
func TestRequirementIsJudgedByBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		blocks, steps int
		slow          func(block, step int) bool
		verdict       stat.Verdict
		explained     string
	}{
		// A start of twenty may be slow in all its steps: 12 blocks miss it in
		// 54 % of all experiments.
		"500 fast steps in few blocks": {12, 42, func(int, int) bool { return false }, stat.Undecided,
			"0 of them took longer than 100 ms. The steps of a block share one start of tenond, so the bound for all starts counts blocks: at most 22.1 % of the steps take longer (one-sided 95 %, 12 blocks). The claim allows 1 %: 299 blocks without a longer step would show it."},
		"one block": {1, 110, func(int, int) bool { return false }, stat.Undecided, "at most 95 % of the steps take longer (one-sided 95 %, 1 block)"},
		"fast steps in enough blocks": {299, 1, func(int, int) bool { return false }, stat.Met,
			"at most 0.997 % of the steps take longer (one-sided 95 %, 299 blocks). The claim allows 1 %."},
		"a slow step in as many blocks": {299, 1, func(b, _ int) bool { return b == 7 }, stat.Undecided, "1 of them took longer than 100 ms, in 1 of 299 blocks."},
		"one start is slow":             {12, 40, func(b, _ int) bool { return b == 3 }, stat.Undecided, "40 of them took longer than 100 ms, in 1 of 12 blocks."},
		"each start is slow at times":   {12, 40, func(b, s int) bool { return s <= 1+b%2 }, stat.NotMet, "The claim allows 1 %."},
		"too few slow starts":           {11, 40, func(b, s int) bool { return s <= 1+b%2 }, stat.Undecided, "in 11 of 11 blocks. The steps of a block share one start of tenond, so the bound for all starts counts blocks, and there is none because each of these has a longer step. The claim allows 1 %."},
	} {
		for _, claim := range Analyse(inventBlocks(c.blocks, c.steps, c.slow)).Claims {
			if claim.Verdict != c.verdict || !strings.Contains(claim.Explanation, c.explained) {
				t.Errorf("%s: %s: %s. %s\nwant: %s. …%s…", name, claim.Name, claim.Verdict, claim.Explanation, c.verdict, c.explained)
			}
			if atLeast := strings.Contains(claim.Explanation, "at least"); atLeast != (c.verdict == stat.NotMet) {
				t.Errorf("%s: %s: %s. %s", name, claim.Name, claim.Verdict, claim.Explanation)
			}
		}
	}
}

// TestAnEndByHandGivesNoFinalVerdict stops an experiment of 299 blocks after 14.
// A look at the results may have chosen the moment.
func TestAnEndByHandGivesNoFinalVerdict(t *testing.T) {
	e, steps := inventBlocks(14, 40, func(b, s int) bool { return s <= 1+b%2 })
	e.Blocks = 299
	for end, want := range map[report.End]string{
		report.EndPlanned: "", report.EndHand: "stopped by hand: no verdict is final", report.EndFailed: "ended by an error: no verdict is final", "": "not ended",
	} {
		e.Ended = end
		r := Analyse(e, steps)
		if r.Blocks != 14 || !strings.HasSuffix(headline(r), "; 14 of 299 blocks.") {
			t.Errorf("%q: %d blocks, %q", end, r.Blocks, headline(r))
		}
		if got := strings.Join(r.Warnings, "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: warnings %q, want %q", end, got, want)
		}
		for _, c := range r.Claims {
			if c.Verdict != stat.NotMet || c.Final != (want == "") {
				t.Errorf("%q: %s is %s, final: %v", end, c.Name, c.Verdict, c.Final)
			}
		}
	}
}

// TestFewBlocksAreNamedBeforeTheFirstRun checks which claims an experiment
// announces that it cannot decide.
func TestFewBlocksAreNamedBeforeTheFirstRun(t *testing.T) {
	const answers, clock = "cannot show that 99 of 100 steps are answered within 100 ms: that claim needs 299 without a slower step (--blocks 299, with as many --steps and --contrast)",
		"cannot decide how tick compares with events: that claim needs 12"
	all := []report.Mode{report.Events, report.Ticks, report.IdleBE}
	for _, c := range []struct {
		modes          []report.Mode
		blocks         int
		answers, clock bool
	}{
		{all, 4, true, true},
		{all, 12, true, false},
		{all, 299, false, false},
		{[]report.Mode{report.Events}, 4, true, false},
		{[]report.Mode{report.Ticks, report.IdleBE}, 4, false, false},
	} {
		got := Decides(c.modes, c.blocks)
		if strings.Contains(got, answers) != c.answers || strings.Contains(got, clock) != c.clock || (got == "") != !(c.answers || c.clock) {
			t.Errorf("%v, %d blocks: %q", c.modes, c.blocks, got)
		}
	}
}
