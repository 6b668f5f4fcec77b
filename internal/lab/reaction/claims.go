package reaction

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// comparesClock reports whether an experiment with these modes compares events
// with a clock alone.
func comparesClock(modes []report.Mode) bool {
	return slices.Contains(modes, report.Events) && slices.Contains(modes, report.Ticks)
}

// answered returns those of the modes that have a requirement for the time until
// tenond has responded to an event.
func answered(modes []report.Mode) []report.Mode {
	return slices.DeleteFunc([]report.Mode{report.Events, report.PSI}, func(m report.Mode) bool { return !slices.Contains(modes, m) })
}

// Decides says which claims about the modes a number of blocks cannot decide. It
// returns "" if the number alone rules no claim out.
func Decides(modes []report.Mode, blocks int) string {
	var open []string
	if least := answerBlocks(); blocks < least && len(answered(modes)) > 0 {
		open = append(open, fmt.Sprintf("%s cannot show that 99 of 100 steps are answered within %.0f ms: that claim needs %d without a slower step (--blocks %[3]d, with as many --steps and --contrast)",
			textlayout.Plural(blocks, "block", "blocks"), answerLimit, least))
	}
	if text := decidesClock(blocks); text != "" && comparesClock(modes) {
		open = append(open, text)
	}
	return strings.Join(open, "; ")
}

// decidesClock says that a number of blocks is too small for the claim that
// compares modes. It returns "" if the number suffices.
func decidesClock(blocks int) string {
	least := paired.Blocks().Least
	if blocks >= least {
		return ""
	}
	return fmt.Sprintf("%s cannot decide how %s compares with %s: that claim needs %d (--blocks %[4]d, with as many --steps and --contrast)",
		textlayout.Plural(blocks, "block", "blocks"), report.Ticks, report.Events, least)
}

// answerBlocks returns the number of blocks without a slow step from which the
// requirement is met.
func answerBlocks() int { return stat.BlocksWithout(slowShare, paired.Blocks().Alpha) }

// claims judges the experiment. The first claim is the requirement that was
// chosen before the measurement.
func claims(e Experiment, apart map[report.Mode]modeSteps) []report.Claim {
	var out []report.Claim
	rule := paired.Blocks().Planned(e.Blocks)
	for _, mode := range answered(e.Modes) {
		out = append(out,
			answerClaim(string(mode)+"-to-narrowed", fmt.Sprintf("In mode %s the batch work is narrowed", mode), apart[mode].yieldedBy, rule),
			answerClaim(string(mode)+"-to-last-write", fmt.Sprintf("In mode %s the last write of the turn that answers an event is over", mode), apart[mode].answersBy, rule))
	}
	if comparesClock(e.Modes) {
		ratio := stat.Ratio(apart[report.Ticks].blockMeans(), apart[report.Events].blockMeans(), rule)
		i := ratio
		out = append(out, report.Claim{
			Name:        "events-shorten-the-wait",
			Statement:   fmt.Sprintf("With a clock alone the service's delay stays raised at least %.0f times as long as with events", tickFactor),
			Numbers:     map[string]report.Interval{"tick_to_events": i},
			Explanation: fmt.Sprintf("Mean time for which the delay stayed raised, %s to %s, by block: %s.", report.Ticks, report.Events, report.Quantity(i, 1, " times")),
		}.With(stat.AtLeast(ratio, tickFactor)))
	}
	return out
}

// answerClaim judges the time from an event until tenond has responded to it, by
// the share of steps in which it is too long. after has the times of each block.
// The steps of a block share one start of tenond, so they are no independent
// evidence: if tenond were slow after one start of twenty, all steps of twelve
// blocks would be fast in more than half of all experiments.
func answerClaim(name, what string, after map[int][]float64, rule paired.Rule) report.Claim {
	all := slices.Concat(slices.Collect(maps.Values(after))...)
	p99, slow := stat.Quantile(all, 1-slowShare), stat.ShareAbove(after, answerLimit, rule)
	c := report.Claim{
		Name:      name,
		Statement: fmt.Sprintf("%s within %.0f ms of the event in user space, at p99", what, answerLimit),
		Numbers:   map[string]report.Interval{"p99_ms": p99, "slow_steps_ratio": slow},
	}.With(stat.AtMost(slow, slowShare))
	c.Explanation = "No step has such a time."
	if len(all) > 0 {
		c.Explanation = fmt.Sprintf("p99 over %s: %s ms. %s", textlayout.Plural(len(all), "step", "steps"), millis(report.Number(p99.Value)), explainSlow(after, slow, c.Verdict))
	}
	return c
}

// explainSlow says how many steps were slow, and which bound of their share
// follows.
func explainSlow(after map[int][]float64, share stat.Estimate, v stat.Verdict) string {
	steps, blocks := 0, 0
	for _, all := range after {
		slow := 0
		for _, ms := range all {
			if ms > answerLimit {
				slow++
			}
		}
		steps += slow
		if slow > 0 {
			blocks++
		}
	}
	of, where := textlayout.Plural(share.Blocks, "block", "blocks"), ""
	if steps > 0 {
		where = fmt.Sprintf(", in %d of %s", blocks, of)
	}
	bound := fmt.Sprintf(": at most %.3g %% of the steps take longer (one-sided 95 %%, %s)", 100*share.ClaimUpper, of)
	switch {
	case v == stat.NotMet:
		bound = fmt.Sprintf(": at least %.3g %% of the steps take longer (one-sided 95 %%, %s)", 100*share.ClaimLower, of)
	case share.ClaimUpper >= 1:
		bound = ", and there is none because each of these has a longer step"
	}
	text := fmt.Sprintf("%d of them took longer than %.0f ms%s. The steps of a block share one start of tenond, so the bound for all starts counts blocks%s. The claim allows %.0f %%",
		steps, answerLimit, where, bound, 100*slowShare)
	if steps == 0 && v == stat.Undecided {
		text += fmt.Sprintf(": %d blocks without a longer step would show it", answerBlocks())
	}
	return text + "."
}
