package colocation

import (
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// The limits of the questions about switched modes, fixed before the measurement.
const (
	aloneLimit = 1.25 // largest P90 relative to that beside frozen batch work
	equalLimit = 1.10 // ratio within which two modes are equal
	workShare  = 0.98 // least CPU time of the batch work relative to BestEffort pods
	badStart   = 2    // a start is bad if its ratio is so many times that of the typical round, or a half if more is better
	// strayWork is the largest rate of batch work in turns in which it was frozen, relative
	// to the rate under Tenon. With more, the work of a turn is not counted in that turn.
	strayWork = 0.01
)

// A Hindrance is a reason why the rounds of an experiment allow no verdict.
type Hindrance string

// The hindrances.
const (
	// TooFewRounds: there are too few starts or rounds, or too many without a ratio.
	TooFewRounds Hindrance = "too few rounds"
	// ServiceFailed: the service failed in a mode in whose favour the verdict is.
	ServiceFailed Hindrance = "the service failed"
	// ClientStood: stalls of the client left out so many requests of a mode that
	// its latencies depend on them.
	ClientStood Hindrance = "the client stood still"
	// UnequallyDisturbed: disturbances hit the two modes unequally.
	UnequallyDisturbed Hindrance = "unequal disturbances"
	// WorkStrayed: batch work was found in turns in which it was frozen, so that the work
	// of a turn is no count.
	WorkStrayed Hindrance = "work in frozen turns"
)

// A SwitchedClaim is a question about two modes with its answer.
type SwitchedClaim struct {
	Name    string      `json:"name"`
	Of      report.Mode `json:"of"`
	To      report.Mode `json:"to"`
	Measure string      `json:"measure"`
	stat.Question
	stat.Answer
	// Hindered is why the verdict is undecided; it is empty if it is not.
	Hindered Hindrance `json:"hindered,omitempty"`
	// Final says that the verdict stands: it was given at a planned look or at a
	// planned end, and decides something.
	Final bool `json:"final"`
	// Rare counts the starts in which the ratio was far worse than that of the typical
	// round. The verdict says nothing about them.
	Rare stat.Rare `json:"bad_starts"`
	// Whole is the ratio of the two modes over the whole run, for measures that add up. A
	// few bad seconds weigh in it, and the typical round leaves them out. It decides
	// nothing.
	Whole *stat.Effect `json:"effect_over_the_run,omitempty"`
	// Undropped is the answer with the rounds that disturbances made void. It is nil if
	// there are none.
	Undropped *stat.Answer `json:"with_disturbed_rounds,omitempty"`

	metric  report.Metric
	rests   bool          // the verdict is another one with the rounds that disturbances made void
	favours []report.Mode // the modes for which every verdict but "not met" speaks
}

// A SwitchedMode has the figures of one mode over all rounds that count.
type SwitchedMode struct {
	Mode    report.Mode  `json:"mode"`
	Windows int          `json:"windows"`
	Seconds float64      `json:"seconds"`
	All     load.Latency `json:"latency_of_all_requests"` // of the windows together
	// Unstalled is the P90 without the requests that stalls of the client
	// delayed, and LeftOut is their share; medians and mean over the windows.
	Unstalled report.Number `json:"p90_without_client_stalls_us"`
	LeftOut   report.Number `json:"left_out_ratio"`
	Waits     report.Number `json:"ls_waiting_us_per_second"`
	Busy      report.Number `json:"cpu_percent"`
	BatchCPUs report.Number `json:"be_cpus_used"`
	Done      report.Number `json:"be_frames"` // of all windows
	DoneRate  report.Number `json:"be_frames_per_second"`
	// Failures and Disturbances count the windows that do not count, with their
	// rounds. They include those of void starts, whose repetition undoes no failure.
	Failures     int `json:"failed_windows"`
	Disturbances int `json:"disturbed_windows"`
	// CarryOver is the P90 of the first half of a window relative to that of the
	// second: it is 1 if nothing of the mode before is left after Settle.
	CarryOver stat.Effect `json:"carry_over"`
	// OddEven is the P90 of odd rounds relative to even ones. It is 1 if the
	// order of the rounds does not matter.
	OddEven stat.Effect `json:"odd_to_even"`

	p90   float64 // median over the windows, of all requests
	valid int     // windows that are not void, also of rounds and starts that do not count
}

// A SwitchedResult is the result of an experiment that switches modes: result.json.
type SwitchedResult struct {
	Schema     int             `json:"schema"` // 1
	Experiment Experiment      `json:"experiment"`
	StartsUsed int             `json:"starts"`
	RoundsUsed int             `json:"rounds"`         // that count
	RoundsLost int             `json:"dropped_rounds"` // a window was disturbed, failed or is missing
	Measured   []SwitchedMode  `json:"modes"`
	Questions  []SwitchedClaim `json:"claims"`
	// Conclusions are the last sentences of the report, whatever they say.
	Conclusions []Conclusion     `json:"conclusions"`
	VoidStarts  []report.VoidRun `json:"void_runs"`
	Warnings    []string         `json:"warnings"`
}

// A Switched is the analysis of an experiment that switches modes.
type Switched struct {
	SwitchedResult
	runs   []Run // valid ones
	tried  []Run // those that measured their modes, also disturbed ones
	rounds []round
	firsts []round // of the first try of each start, with disturbed windows
}

// A round has a window of each mode.
type round struct {
	start   int
	number  int
	windows map[report.Mode]Window
}

// AnalyseSwitched turns the runs of an experiment that switches modes into its
// findings. It is pure and deterministic.
func AnalyseSwitched(e Experiment, runs []Run) *Switched {
	s := &Switched{SwitchedResult: SwitchedResult{
		Schema: report.Schema, Experiment: e, Measured: []SwitchedMode{}, Questions: []SwitchedClaim{}, VoidStarts: []report.VoidRun{}, Warnings: []string{},
	}}
	last := map[int]Run{} // a void start is repeated under the same number
	for _, r := range runs {
		if r.VoidCause() != report.NotItsMode {
			s.tried = append(s.tried, r)
		}
		if len(r.Void) > 0 {
			s.VoidStarts = append(s.VoidStarts, report.VoidRun{Index: r.Index, Block: r.Block, Mode: r.Mode, Reasons: r.Void})
			continue
		}
		last[r.Block] = r
	}
	for _, r := range runs {
		if len(r.Void) == 0 && last[r.Block].Index == r.Index {
			s.runs = append(s.runs, r)
		}
	}
	s.rounds, s.RoundsLost = s.collect(s.runs, report.NotVoid)
	s.firsts, _ = s.collect(firstTries(s.tried), report.NotVoid, report.Disturbed)
	s.RoundsUsed = len(s.rounds)
	s.StartsUsed = len(s.runs)
	for _, m := range e.Modes {
		s.Measured = append(s.Measured, s.measured(m))
	}
	for _, c := range questions(e.Modes) {
		s.Questions = append(s.Questions, s.answered(c))
	}
	s.Conclusions = s.concluded()
	s.warn(runs)
	return s
}

// firstTries returns the first try of each start. Void starts are repeated, and what
// remains of the tries may be a selection.
func firstTries(tried []Run) []Run {
	seen := map[int]bool{}
	var first []Run
	for _, r := range tried {
		if !seen[r.Block] {
			first = append(first, r)
		}
		seen[r.Block] = true
	}
	return first
}

// collect finds the rounds that count: those with a window of each mode that is void for
// no other cause than the given ones. If a disturbance hits one window, the whole round
// is dropped, because the others of the round would lose their partner. lost is the
// number of rounds that are dropped.
func (s *Switched) collect(runs []Run, causes ...report.Cause) (rounds []round, lost int) {
	for _, r := range runs {
		all := map[int]map[report.Mode]Window{}
		most := 0
		for _, w := range r.Windows {
			if all[w.Round] == nil {
				all[w.Round] = map[report.Mode]Window{}
			}
			all[w.Round][w.Mode] = w
			most = max(most, w.Round)
		}
		for number := 1; number <= most; number++ {
			counts := true
			for _, m := range s.Experiment.Modes {
				w, has := all[number][m]
				counts = counts && has && slices.Contains(causes, w.VoidCause())
			}
			if !counts {
				lost++
				continue
			}
			rounds = append(rounds, round{r.Block, number, all[number]})
		}
	}
	return rounds, lost
}

// ratios returns the log ratios of two modes in rounds.
func ratios(of, to report.Mode, m report.Metric, among []round) stat.Rounds {
	rounds := stat.Rounds{}
	for _, r := range among {
		rounds[r.start] = append(rounds[r.start], math.Log(m(r.windows[of].Run)/m(r.windows[to].Run)))
	}
	return rounds
}

// overTheRun estimates the ratio of the rates of two modes over the whole run. It returns
// nil for a measure that does not add up, such as a percentile.
func (s *Switched) overTheRun(c SwitchedClaim, alpha float64) *stat.Effect {
	rate := map[string]report.Metric{report.WaitingTime.Key: report.Waiting, workMeasure: batchCPUs}[c.Measure]
	if rate == nil {
		return nil
	}
	total := func(mode report.Mode) map[int]stat.Total {
		totals := map[int]stat.Total{}
		for _, r := range s.rounds {
			w := r.windows[mode]
			if amount := rate(w.Run) * w.Length.Seconds(); !math.IsNaN(amount) { // unknown where the service did not run
				t := totals[r.start]
				totals[r.start] = stat.Total{Amount: t.Amount + amount, Seconds: t.Seconds + w.Length.Seconds()}
			}
		}
		return totals
	}
	e := stat.EffectOfTotals(total(c.Of), total(c.To), alpha)
	e.Rounds = s.RoundsUsed
	return &e
}

// allP90 is the P90 of all requests of a window.
func allP90(r report.Run) float64 {
	if r.WithStalls == nil {
		return math.NaN()
	}
	return report.Positive(r.WithStalls.P90)
}

func batchCPUs(r report.Run) float64 { return report.Positive(r.BECPU) }

// questions returns the questions that the modes allow, beginning with the most
// important one. A question whose modes do not run is none.
func questions(modes []report.Mode) []SwitchedClaim {
	var list []SwitchedClaim
	ask := func(of, to report.Mode, measure string, metric report.Metric, q stat.Question, favours ...report.Mode) {
		if slices.Contains(modes, of) && slices.Contains(modes, to) && of != to {
			list = append(list, SwitchedClaim{
				Name: fmt.Sprintf("%s-to-%s-%s", of, to, measure), Of: of, To: to, Measure: measure, Question: q, metric: metric, favours: favours,
			})
		}
	}
	waiting := report.WaitingTime.Key
	ask(report.Tenon, report.Frozen, report.P90.Key, allP90, stat.Question{Asks: stat.AsksAtMost, Limit: aloneLimit}, report.Tenon)
	for _, m := range modes {
		if m.Spec().Eighths > 0 {
			ask(m, report.Tenon, waiting, report.Waiting, stat.Question{Asks: stat.AsksAtLeast, Limit: burstableFactor}, report.Tenon)
		}
	}
	for _, m := range modes {
		if !m.Spec().Tenon {
			continue
		}
		equal := stat.Question{Asks: stat.AsksWhich, Limit: equalLimit}
		ask(m, report.Default, report.P90.Key, allP90, equal, m, report.Default)
		ask(m, report.Default, waiting, report.Waiting, equal, m, report.Default)
		ask(m, report.Default, workMeasure, batchCPUs, stat.Question{Asks: stat.AsksAtLeast, Limit: workShare}, m)
	}
	// The control: two names of one mode. It favours no mode.
	same := stat.Question{Asks: stat.AsksWhich, Limit: equalLimit}
	ask(report.FrozenAA, report.Frozen, report.P90.Key, allP90, same)
	ask(report.FrozenAA, report.Frozen, waiting, report.Waiting, same)
	return list
}

// workMeasure is the key of the CPU time of the batch work.
const workMeasure = "batch-cpu"

// bad is the ratio of a bad start to the typical round.
func (c SwitchedClaim) bad() float64 {
	if c.Asks == stat.AsksAtLeast {
		return 1.0 / badStart
	}
	return badStart
}

// answered answers a question.
func (s *Switched) answered(c SwitchedClaim) SwitchedClaim {
	e := s.Experiment
	rounds := ratios(c.Of, c.To, c.metric, s.rounds)
	c.Answer, c.Rare = c.Question.Answer(rounds, len(e.Looks)), stat.RareOf(rounds, c.bad())
	c.Whole = s.overTheRun(c, c.Effect.Error)
	c.Final = s.isFinal()
	of, to := s.mode(c.Of), s.mode(c.To)
	disturbed := func(m SwitchedMode) bool { return m.Disturbances > 0 }
	if len(s.tried) > len(s.runs) || slices.ContainsFunc(s.Measured, disturbed) {
		undropped := c.Question.Answer(ratios(c.Of, c.To, c.metric, s.firsts), len(e.Looks))
		c.Undropped = &undropped
	}
	latency := c.Measure == report.P90.Key
	switch {
	case c.Verdict != stat.NotMet && slices.ContainsFunc(c.favours, func(m report.Mode) bool { return s.mode(m).Failures > 0 }):
		c.Hindered = ServiceFailed // also if so many rounds failed that too few are left
	case c.Verdict == stat.Undecided:
		c.Hindered = TooFewRounds
	case latency && (of.dependsOnClient() || to.dependsOnClient()):
		c.Hindered = ClientStood
	case stat.Fisher(of.Disturbances, of.valid+of.Disturbances, to.Disturbances, to.valid+to.Disturbances) < unequalLevel:
		c.Hindered = UnequallyDisturbed
	}
	c.rests = c.Hindered == "" && c.Undropped != nil && c.Undropped.Verdict != c.Verdict
	if c.Hindered != "" {
		c.Verdict, c.Final = stat.Undecided, false
	}
	return c
}

// isFinal reports whether no look at the results chose the moment of this analysis: the
// experiment has ended by its plan or by its time, or is at a planned look.
func (s *Switched) isFinal() bool {
	e := s.Experiment
	return e.Ended.Planned() || e.Ended == "" && slices.Contains(e.Looks, s.StartsUsed)
}

// unequalLevel is the p value below which two modes count as disturbed to different
// degrees.
const unequalLevel = 0.05

// dependsOnClient reports whether the P90 of a mode depends on the requests that
// stalls of the client delayed: they are more than a twentieth, or the P90 without
// them differs by more than a tenth.
func (m SwitchedMode) dependsOnClient() bool {
	limits, ratio := load.DefaultLimits, float64(m.Unstalled)/m.p90
	return float64(m.LeftOut) > limits.SpoiledRatio || max(ratio, 1/ratio) > limits.P90Ratio
}

func (s *Switched) mode(m report.Mode) SwitchedMode {
	for _, measured := range s.Measured {
		if measured.Mode == m {
			return measured
		}
	}
	return SwitchedMode{Mode: m}
}

// measured summarises a mode.
func (s *Switched) measured(mode report.Mode) SwitchedMode {
	m := SwitchedMode{Mode: mode}
	all := load.NewHistogram()
	var p90, unstalled []float64
	var waits, busy, cpus, frames, leftOut, requests float64
	halves, orders := stat.Rounds{}, stat.Rounds{}
	for i, r := range s.rounds {
		w := r.windows[mode]
		early, late := load.NewHistogram(), load.NewHistogram()
		for _, half := range []struct {
			of   load.Packed
			into load.Histogram
		}{{w.Early, early}, {w.Late, late}} {
			if half.of.PackedHistogram != nil {
				half.of.MergeInto(half.into.Histogram)
				half.of.MergeInto(all.Histogram)
			}
		}
		first, second := load.LatencyOf(early.Histogram, load.LatencyUnit), load.LatencyOf(late.Histogram, load.LatencyUnit)
		halves[r.start] = append(halves[r.start], math.Log(first.P90/second.P90))
		if i > 0 && r.number%2 == 0 && s.rounds[i-1].start == r.start && s.rounds[i-1].number == r.number-1 {
			orders[r.start] = append(orders[r.start], math.Log(allP90(s.rounds[i-1].windows[mode].Run)/allP90(w.Run)))
		}
		seconds := w.Length.Seconds()
		m.Windows++
		m.Seconds += seconds
		p90, unstalled = append(p90, allP90(w.Run)), append(unstalled, w.Latency.P90)
		waits += report.Waiting(w.Run) * seconds
		busy += w.CPUPercent * seconds
		cpus += w.BECPU * seconds
		frames += w.Frames
		leftOut += w.Spoiled * float64(w.Requests)
		requests += float64(w.Requests)
	}
	for _, r := range s.tried {
		for _, w := range r.Windows {
			switch {
			case w.Mode != mode:
			case len(w.Void) == 0:
				m.valid++
			case w.VoidCause() == report.Failed:
				m.Failures++
			default:
				m.Disturbances++
			}
		}
	}
	m.All = load.LatencyOf(all.Histogram, load.LatencyUnit)
	m.p90, m.Unstalled = medianOf(p90), report.Number(medianOf(unstalled))
	share := func(sum, whole float64) report.Number { return report.Number(report.KnownOrNaN(sum/whole, whole > 0)) }
	m.Waits, m.Busy, m.BatchCPUs = share(waits, m.Seconds), share(busy, m.Seconds), share(cpus, m.Seconds)
	m.Done, m.DoneRate, m.LeftOut = report.Number(frames), share(frames, m.Seconds), share(leftOut, requests)
	m.CarryOver, m.OddEven = stat.EffectOf(halves, stat.RatioError), stat.EffectOf(orders, stat.RatioError/2)
	return m
}

// medianOf returns the median of values, or NaN if there is none.
func medianOf(values []float64) float64 {
	s := stat.Sample{}
	for i, v := range values {
		s[i] = v
	}
	return stat.Median(s)
}

// IsResolved reports whether the experiment may end: at a planned look at which
// every question is decided, and at the last look in any case.
func (s *Switched) IsResolved() bool {
	looks := s.Experiment.Looks
	if len(looks) == 0 || !slices.Contains(looks, s.StartsUsed) {
		return false
	}
	open := func(c SwitchedClaim) bool {
		return c.Verdict == stat.Undecided || c.Verdict == stat.BoundedAbove || c.Verdict == stat.BoundedBelow
	}
	return s.StartsUsed >= slices.Max(looks) || len(s.Questions) > 0 && !slices.ContainsFunc(s.Questions, open)
}

// Result returns the content of result.json.
func (s *Switched) Result() any { return s.SwitchedResult }
