package colocation

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// verdictWords are the words for the verdicts about switched modes.
var verdictWords = map[stat.Verdict]string{
	stat.Met: "met", stat.NotMet: "missed", stat.Tie: "equivalent", stat.Differs: "differs",
	stat.BoundedAbove: "at most", stat.BoundedBelow: "at least", stat.Undecided: "cannot tell",
}

// measureWords are the words for the measures of switched modes.
var measureWords = map[string]string{
	report.P90.Key: "P90", report.WaitingTime.Key: "waiting for a CPU", workMeasure: "CPU time of the batch work",
}

// hindranceWords say why a question has no verdict.
var hindranceWords = map[Hindrance]string{
	TooFewRounds:       fmt.Sprintf("A verdict needs %d starts, and %d rounds in which both values are above zero.", stat.LeastStarts, stat.LeastRounds),
	ServiceFailed:      "The service failed requests in a mode in whose favour the verdict would be: a request that is due in a window is answered, if late, or counts as failed.",
	ClientStood:        "The client itself stood still for so many requests of a mode that its P90 depends on them: give it CPUs of its own.",
	UnequallyDisturbed: "Disturbances hit the two modes unequally, so the rounds that remain are a selection.",
	WorkStrayed:        "Work was found in turns in which it was frozen, so the work of a turn was not counted in that turn.",
}

// Page returns what the analysis shows.
func (s *Switched) Page() page.Page {
	e := s.Experiment
	p := e.Page("What colocation cost and won", "in runs/ for each start its JSON with all windows, and its HdrHistogram log")
	p.Lead, p.Warnings = []string{s.headline()}, s.Warnings
	p.Setup = append(p.Setup, fullExperiment{experiment: e}.setup()...)
	p.Sections = []page.Section{
		{Title: s.inShort(), On: page.OnlyHTML, Items: s.ending()},
		{Title: "The modes, in turns of " + e.Turn.String(), Table: s.table(), Legend: s.legend()},
		{Title: "Claims", Claims: s.shownClaims()},
		{Title: "Does the order of the turns matter?", Table: s.checks(), Legend: orderLegend},
		{Title: "Method", On: page.OnlyHTML, Body: switchedMethod},
		{Title: "What was written to the kernel, and why", On: page.OnlyHTML, Details: s.writes()},
		{Title: "Calibration", On: page.OnlyHTML, Items: slices.Concat(e.Calibration, e.Check.Lines())},
	}
	void := page.Section{Title: fmt.Sprintf("Void starts (not used): %d", len(s.VoidStarts))}
	for _, v := range s.VoidStarts {
		void.Items = append(void.Items, fmt.Sprintf("%03d, start %d: %s", v.Index, v.Block, strings.Join(v.Reasons, "; ")))
	}
	p.Sections = append(p.Sections, void)
	p.Short = page.Section{Title: s.inShort(), Items: s.ending()}
	return p
}

// inShort is the title of the last sentences. It fits into a line of a terminal.
func (s *Switched) inShort() string {
	return fmt.Sprintf("In short (%.0f %% intervals, all together); %s", 100*(1-stat.RatioError), s.moment())
}

// orderLegend says what the order of the turns can show, and what it cannot.
const orderLegend = "P90 of all requests, with bounds of which each is wrong in about 5 % and 2.5 % of experiments. If neither the turn before nor the time mattered, both ratios would be 1. A ratio near 1 does not show the converse: what of the turn before lasts for a whole turn is in both of its halves, and what is within the bounds is not excluded."

const switchedMethod template.HTML = `<p>The service and the batch work start anew for each start, and run to its end. Within a start the lab changes the mode each turn, by writing the cgroup of the batch work: its weight, the time slices of its threads, and whether it is frozen. A round has every mode once, in random order. The first part of each turn is not measured.</p>
<p>The unit of evidence is the ratio of two modes within a round. A bound is the widest of three: that of the mean over all rounds without the smallest and the largest tenth (Yuen), Student’s bound of the mean over the starts, and one as far from the first mean as Student’s is from the second. A claim rests on the bounds that are printed beside it.</p>`

// headline describes the experiment in one sentence.
func (s *Switched) headline() string {
	e := s.Experiment
	service, batch := fullExperiment{experiment: e}.workload()
	text := fmt.Sprintf("%s on %s %s", service, report.CPUWord(e.Experiment), e.TestedCPUs)
	if e.Client == "command" {
		text += ", load by a command"
	} else {
		text += fmt.Sprintf(", %.0f requests/s offered (%.0f %% of capacity)", e.OfferedRate, e.LoadPercent)
	}
	if e.Own == nil {
		batch = fmt.Sprintf("ffmpeg, %s of %s", textlayout.Plural(e.BEProcesses, "process", "processes"), textlayout.Plural(e.BEThreads, "thread", "threads"))
	}
	return fmt.Sprintf("%s; %s; %s of %s, with %s that count.", text, batch, textlayout.Plural(s.StartsUsed, "start", "starts"),
		e.Duration.Round(time.Second/10), textlayout.Plural(s.RoundsUsed, "round", "rounds"))
}

// legend explains the table.
func (s *Switched) legend() string {
	text := "Latency in ms of all requests from the intended send time, over all windows that count; waiting of all service threads in ms per second. "
	if slices.Contains(s.Experiment.Modes, report.Frozen) {
		text += fmt.Sprintf("%s is the service alone on CPUs that were busy with the batch work a second ago. They sleep between requests, and beside batch work they do not. So it is another baseline than a service on a machine of its own. ", report.Frozen)
	}
	return text + "Each turn of Tenon begins with a tick of its own policies. What only its loop adds over minutes, such as the back-off for a missed objective and CPU suppress, is not measured by turns."
}

// table shows the modes.
func (s *Switched) table() page.Table {
	row := func(name, unit string, text func(SwitchedMode) string) page.Column[SwitchedMode] {
		return page.Column[SwitchedMode]{Name: name, Unit: unit, Text: text}
	}
	latency := func(name string, of func(SwitchedMode) float64) page.Column[SwitchedMode] {
		return row(name, "ms", func(m SwitchedMode) string { return report.Scaled(report.Positive(of(m)), 1e-3, 3) })
	}
	columns := []page.Column[SwitchedMode]{
		latency("P50", func(m SwitchedMode) float64 { return m.All.P50 }),
		latency("P90", func(m SwitchedMode) float64 { return m.All.P90 }),
		latency("P99", func(m SwitchedMode) float64 { return m.All.P99 }),
		latency("P99.9", func(m SwitchedMode) float64 { return m.All.P999 }),
		latency("P90, no stalls", func(m SwitchedMode) float64 { return float64(m.Unstalled) }),
		row("left out of it", "%", func(m SwitchedMode) string { return report.Scaled(m.LeftOut, 100, 1) }),
		row("waiting", "ms/s", func(m SwitchedMode) string { return report.Scaled(m.Waits, 1e-3, 2) }),
		row("CPU %", "", func(m SwitchedMode) string { return report.FormatNumber(m.Busy, 1) }),
		row("BE CPUs", "", func(m SwitchedMode) string { return report.FormatNumber(m.BatchCPUs, 3) }),
	}
	if s.Experiment.Own == nil {
		columns = append(columns, row("BE frames/s", "", func(m SwitchedMode) string { return report.FormatNumber(m.DoneRate, 1) }))
	} else {
		columns = append(columns, row("BE % of alone", "", func(m SwitchedMode) string { return report.Scaled(m.DoneRate, 100, 1) }))
	}
	columns = append(columns,
		row("windows", "", func(m SwitchedMode) string { return fmt.Sprint(m.Windows) }),
		row("  disturbed", "", func(m SwitchedMode) string { return fmt.Sprint(m.Disturbances) }),
		row("  failed", "", func(m SwitchedMode) string { return fmt.Sprint(m.Failures) }),
	)
	t := page.Across(columns, report.Heads(s.Experiment.Modes, nil), s.Measured)
	t.Label, t.Cell = report.LabelWidth, report.CellWidth
	return t
}

// checks shows what the experiment says about its own order.
func (s *Switched) checks() page.Table {
	return page.Down([]page.Column[SwitchedMode]{
		{Name: "mode", Text: func(m SwitchedMode) string { return string(m.Mode) }},
		{Name: "first half to second", Text: func(m SwitchedMode) string { return changeText(m.CarryOver) }},
		{Name: "odd rounds to even", Text: func(m SwitchedMode) string { return changeText(m.OddEven) }},
	}, s.Measured)
}

// changeText prints a ratio with its bounds.
func changeText(e stat.Effect) string {
	if e.Rounds == 0 {
		return report.Unknown
	}
	if !e.Lower.Known() || !e.Upper.Known() {
		return report.Change(e.Ratio)
	}
	return fmt.Sprintf("%s (%s)", report.Change(e.Ratio), outward(e.Lower, e.Upper, " … "))
}

// shownClaims returns the claims in the form of a page.
func (s *Switched) shownClaims() []page.Claim {
	var shown []page.Claim
	for _, c := range s.Questions {
		shown = append(shown, page.Claim{Statement: c.statement(), Verdict: verdictWords[c.Verdict], Explanation: c.explanation()})
	}
	return shown
}

// statement says what a question asks.
func (c SwitchedClaim) statement() string {
	name := measureWords[c.Measure]
	switch {
	case c.Asks == stat.AsksAtMost:
		return fmt.Sprintf("%s, %s to %s: at most %s more", name, c.Of, c.To, report.Limit(c.Limit))
	case c.Asks == stat.AsksAtLeast && c.Limit >= 2:
		return fmt.Sprintf("%s, %s to %s: at least %g times", name, c.Of, c.To, c.Limit)
	case c.Asks == stat.AsksAtLeast:
		return fmt.Sprintf("%s, %s to %s: at least %.0f %%", name, c.Of, c.To, 100*c.Limit)
	}
	return fmt.Sprintf("%s, %s to %s: do they differ, or are they equivalent within %s", name, c.Of, c.To, report.Limit(c.Limit))
}

// explanation says what the rounds show.
func (c SwitchedClaim) explanation() string {
	e := c.Effect
	text := fmt.Sprintf("%s of %s.", textlayout.Plural(e.Rounds, "round", "rounds"), textlayout.Plural(e.Starts, "start", "starts"))
	if e.Lower.Known() && e.Upper.Known() {
		text = fmt.Sprintf("Ratio %s in the typical round, each bound wrong in about %s %% of experiments; ", changeText(e), report.FormatNumber(100*e.Error, 1)) + text
	}
	if e.Dropped > 0 {
		text += fmt.Sprintf(" %s left out, because a value was zero or missing.", textlayout.Plural(e.Dropped, "round was", "rounds were"))
	}
	switch c.Verdict {
	case stat.BoundedAbove:
		text += " What is shown: at most the upper bound."
	case stat.BoundedBelow:
		text += " What is shown: at least the lower bound."
	case stat.Undecided:
		text += " " + hindranceWords[c.Hindered]
	}
	if c.Whole != nil && c.Whole.Lower.Known() && c.Whole.Upper.Known() {
		text += fmt.Sprintf(" Over the whole run: %s.", changeText(*c.Whole))
	}
	if c.rests {
		text += fmt.Sprintf(" With the rounds that disturbances made void, the verdict would be %q: %s.", verdictWords[c.Undropped.Verdict], changeText(c.Undropped.Effect))
	}
	if c.Rare.Starts > 0 && c.Measure != workMeasure {
		far := fmt.Sprintf("%g times as high", c.Rare.Factor)
		if c.Rare.Factor < 1 {
			far = "half as high or less"
		}
		text += fmt.Sprintf(" Starts in which it was %s: %d of %d; they may be up to %s %% of all.", far, c.Rare.Seen, c.Rare.Starts, report.Scaled(c.Rare.Most, 100, 0))
	}
	return text
}

// moment says in a clause how the experiment had ended at the time of the analysis, and
// whether that is final.
func (s *Switched) moment() string {
	const interim = ", so nothing is final"
	done := textlayout.Plural(s.StartsUsed, "start", "starts")
	if planned := s.Experiment.Blocks; planned > 0 {
		done = fmt.Sprintf("%d of %s", s.StartsUsed, textlayout.Plural(planned, "start", "starts"))
	}
	switch e := s.Experiment; {
	case e.Ended == report.EndPlanned:
		return "the experiment ended as planned"
	case e.Ended == report.EndTime:
		return "the time of the experiment was over after " + done
	case e.Ended == report.EndHand:
		return "stopped by hand after " + done + interim
	case e.Ended == report.EndFailed:
		return "ended by an error after " + done + interim
	case s.isFinal():
		return "a planned look after " + done
	}
	return "not ended: " + done + interim
}

// ending returns the sentences for a reader who reads nothing else. They are
// printed whatever they say.
func (s *Switched) ending() []string {
	var texts []string
	for _, c := range s.Conclusions {
		texts = append(texts, s.sentence(c))
	}
	return texts
}

// writes returns the kernel writes of one start.
func (s *Switched) writes() []page.Detail {
	for _, r := range s.runs {
		if len(r.Writes) > 0 {
			return []page.Detail{{Title: fmt.Sprintf("by Tenon, as in start %d", r.Block), Hidden: strings.Join(r.Writes, "\n")}}
		}
	}
	return nil
}

// warn adds what a reader needs before trusting a number.
func (s *Switched) warn(runs []Run) {
	add := func(format string, args ...any) { s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...)) }
	e := s.Experiment
	if e.Machine.Emulated {
		add("this machine is emulated by a program: what was run and written is real, but how long requests took means nothing")
	}
	if e.Check != nil && !e.Check.IsQuiet() {
		add("the machine was not quiet: %s", e.Check.machine())
	}
	switch {
	case e.Ended == report.EndHand:
		add("stopped by hand: no verdict is final, because a look at the results may have chosen the moment")
	case e.Ended == report.EndFailed:
		add("ended by an error: no verdict is final")
	case !s.isFinal():
		add("the experiment runs, or was killed: no verdict is final before a planned look or its end")
	case s.StartsUsed < stat.LeastStarts || s.RoundsUsed < stat.LeastRounds:
		add("%s of %s: no verdict, because it needs %d of %d (--starts, --start-length)", textlayout.Plural(s.RoundsUsed, "round", "rounds"),
			textlayout.Plural(s.StartsUsed, "start", "starts"), stat.LeastRounds, stat.LeastStarts)
	}
	if all := s.RoundsUsed + s.RoundsLost; s.RoundsLost*5 > all {
		add("%d of %d rounds do not count: a window of each was disturbed, failed or is missing", s.RoundsLost, all)
	}
	for _, m := range s.Measured {
		if m.Failures > 0 {
			add("%s: the service failed requests in %s; this is an outcome of the mode", m.Mode, textlayout.Plural(m.Failures, "window", "windows"))
		}
		if m.CarryOver.IsEnough() && (m.CarryOver.Lower > 1 || m.CarryOver.Upper < 1) {
			add("%s: the first half of a turn differs from the second (P90 %s), so something of the mode before is left after %v", m.Mode, changeText(m.CarryOver), e.Settle)
		}
		if m.OddEven.IsEnough() && (m.OddEven.Lower > 1 || m.OddEven.Upper < 1) {
			add("%s: odd rounds differ from even ones (P90 %s), although they are the same mode", m.Mode, changeText(m.OddEven))
		}
	}
	counts := map[string]int{}
	for _, r := range runs {
		for _, w := range r.Warnings {
			counts[w]++
		}
	}
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		add("%s (%d of %d starts)", w, counts[w], len(runs))
	}
}
