package reaction

import (
	"fmt"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// A Result is the result of a reaction experiment (result.json). Times are in
// ms. A time is null if it is not known, or if it is longer than the step.
type Result struct {
	Schema     int                    `json:"schema"` // 1
	Experiment Experiment             `json:"experiment"`
	Blocks     int                    `json:"blocks"` // with at least one step that is used
	Order      []report.Mode          `json:"mode_order"`
	Modes      map[report.Mode]Figure `json:"modes"`
	Claims     []report.Claim         `json:"claims"`
	Warnings   []string               `json:"warnings"`

	steps []Step // for the pictures
}

// Result returns the content of result.json.
func (r Result) Result() any { return r }

// A Figure is the result of one mode.
type Figure struct {
	Steps    int `json:"steps"`      // steps that are used
	Void     int `json:"void_steps"` // steps that are not used
	WithTick int `json:"steps_with_event_and_write"`
	Narrowed int `json:"steps_narrowed"`
	Cycles   int `json:"cycles"`
	Undone   int `json:"undone_cycles"`
	// EventToWrite is the time from an event to the last write of the tick that
	// responds to it. The event is the first kernel event of that tick. The
	// time begins when tenond receives the event. In each step only the first
	// such tick counts.
	EventToWrite Spread `json:"event_to_last_write_ms"`
	StepToEvent  Spread `json:"step_to_event_ms"`
	// EventToNarrowed begins with the first kernel event in the step. It ends
	// with the first later tick that narrowed the bound of the batch work. If
	// the step ended before that, its time counts as longer than all others.
	// Events in the last 100 ms of a step do not count.
	EventToNarrowed Spread `json:"event_to_narrowed_ms"`
	// StepToNarrowed begins with the step. It ends with the first tick that
	// narrowed the bound of the batch work. If the step ended before that, its
	// time counts as longer than all others.
	StepToNarrowed Spread `json:"step_to_narrowed_ms"`
	// Raised is the time for which the delay stays raised: from the beginning
	// of the step until the last late cycle before a calm time. A calm time is
	// 100 ms without a late cycle. If the step has none, Raised is its length.
	Raised Spread `json:"raised_ms"`
	// Late is the share of the cycles that were late or did not begin.
	Late       report.Number `json:"late_cycles_ratio"`
	DelayP50   report.Number `json:"cycle_delay_p50_ms"`
	DelayP99   report.Number `json:"cycle_delay_p99_ms"`
	QuotaP50   report.Number `json:"be_quota_at_step_p50_mcpu"`
	RaisedMean report.Number `json:"raised_mean_ms"` // over blocks
}

// A Spread is the distribution of a time over steps. Its percentiles have
// intervals that take the steps as independent (stat.Quantile).
type Spread struct {
	Steps int             `json:"steps"`
	P50   report.Interval `json:"p50"`
	P99   report.Interval `json:"p99"`
	Max   report.Number   `json:"max"`
}

const (
	// lateCycle is the delay from which a cycle counts as late. It equals one
	// period: when a cycle is late, the next one is due, too. The lowest bound
	// of the batch work, 0.01 CPU, lets it run for 1 ms in each period of its
	// quota. If a cycle waits only for that, it does not count as late.
	lateCycle = 2 * time.Millisecond
	// calmTime is the time without a late cycle after which the delay counts as
	// normal again. It equals the period of a CPU quota.
	calmTime = 100 * time.Millisecond
	// answerLimit is the required upper limit for the p99 of the time from an
	// event until tenond has responded to it.
	answerLimit = 100.0 // ms
	// slowShare is the required upper limit for the share of steps in which
	// this time is above answerLimit. The p99 is at most answerLimit if the
	// share is at most slowShare.
	slowShare = 0.01
	// tickFactor is the required lower limit for a ratio. The ratio compares
	// the time for which the delay stays raised in mode tick with the same time
	// in mode events.
	tickFactor = 2.0
)

// raisedTime returns how long the delay of a step stayed raised, or 0 if it was
// never raised. The cycles must be in the order of Due.
func (s Step) raisedTime() time.Duration {
	var last time.Duration
	for i, due := range s.Due {
		at := time.Duration(due) * time.Microsecond
		if at-last >= calmTime {
			return last
		}
		if delay := time.Duration(s.Delays[i]) * time.Microsecond; delay >= lateCycle {
			last = max(last, at+delay)
		}
	}
	if s.Undone > 0 || s.Length-last < calmTime {
		return s.Length
	}
	return last
}

// answer returns the first tick of the step that was started by a kernel event
// and wrote something.
func (s Step) answer() (StepTick, bool) {
	for _, t := range s.Ticks {
		if t.Woken != nil && *t.Woken >= 0 && t.Writes > 0 {
			return t, true
		}
	}
	return StepTick{}, false
}

// narrowedAfter returns the time in ms from the begin of the step until the
// batch work was narrowed. It is infinite if this did not happen in the step.
func (s Step) narrowedAfter() float64 {
	for _, t := range s.Ticks {
		if t.Narrowed {
			return milliseconds(t.Ended)
		}
	}
	return math.Inf(1)
}

// yieldTime returns the time in ms from the first event of the step until the
// batch work was narrowed. It is infinite if this did not happen in the step. It
// returns false if the step had no event, or if the first event came too late for
// an answer within the step.
func (s Step) yieldTime() (float64, bool) {
	if len(s.Events) == 0 || milliseconds(s.Length-s.Events[0].At) < answerLimit {
		return 0, false
	}
	for _, t := range s.Ticks {
		if t.Narrowed && t.Ended >= s.Events[0].At {
			return milliseconds(t.Ended - s.Events[0].At), true
		}
	}
	return math.Inf(1), true
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func spreadOf(values []float64) Spread {
	s := Spread{Steps: len(values), P50: stat.Quantile(values, 0.5), P99: stat.Quantile(values, 0.99), Max: report.Number(math.NaN())}
	if len(values) > 0 {
		s.Max = report.Number(slices.Max(values))
	}
	return s
}

// A modeSteps holds the values of all steps of a mode that are used.
type modeSteps struct {
	answers, yielded, events, narrowed, raised, delays, quotas []float64
	answersBy, yieldedBy, raisedBy                             map[int][]float64 // by block
}

func takeApart(steps []Step) modeSteps {
	m := modeSteps{answersBy: map[int][]float64{}, yieldedBy: map[int][]float64{}, raisedBy: map[int][]float64{}}
	for _, s := range steps {
		if t, ok := s.answer(); ok {
			after := milliseconds(t.Ended - *t.Woken)
			m.answers = append(m.answers, after)
			m.answersBy[s.Block] = append(m.answersBy[s.Block], after)
		}
		if len(s.Events) > 0 {
			m.events = append(m.events, milliseconds(s.Events[0].At))
		}
		if after, ok := s.yieldTime(); ok {
			m.yielded = append(m.yielded, after)
			m.yieldedBy[s.Block] = append(m.yieldedBy[s.Block], after)
		}
		m.narrowed = append(m.narrowed, s.narrowedAfter())
		raised := milliseconds(s.raisedTime())
		m.raised = append(m.raised, raised)
		m.raisedBy[s.Block] = append(m.raisedBy[s.Block], raised)
		if s.Quota > 0 {
			m.quotas = append(m.quotas, float64(s.Quota))
		}
		for _, d := range s.Delays {
			m.delays = append(m.delays, float64(d)/1000)
		}
	}
	return m
}

// blockMeans returns the mean of raised for each block.
func (m modeSteps) blockMeans() stat.Sample {
	s := stat.Sample{}
	for block, values := range m.raisedBy {
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		s[block] = sum / float64(len(values))
	}
	return s
}

// usedSteps returns the steps of a mode that are not void, and how many are
// void.
func usedSteps(steps []Step, mode report.Mode) (used []Step, void int) {
	for _, s := range steps {
		switch {
		case s.Mode != mode:
		case len(s.Void) > 0:
			void++
		default:
			used = append(used, s)
		}
	}
	return used, void
}

// Analyse turns the steps of an experiment into its result. It is pure and
// deterministic.
func Analyse(e Experiment, steps []Step) Result {
	r := Result{Schema: report.Schema, Experiment: e, Modes: map[report.Mode]Figure{}, Claims: []report.Claim{}, Warnings: []string{}, steps: steps}
	apart := map[report.Mode]modeSteps{}
	for _, mode := range e.Modes {
		used, void := usedSteps(steps, mode)
		m := takeApart(used)
		apart[mode] = m
		f := Figure{
			Steps: len(used), Void: void, WithTick: len(m.answers),
			EventToWrite: spreadOf(m.answers), EventToNarrowed: spreadOf(m.yielded), StepToEvent: spreadOf(m.events), StepToNarrowed: spreadOf(m.narrowed), Raised: spreadOf(m.raised),
			DelayP50: report.Number(stat.Quantile(m.delays, 0.5).Value), DelayP99: report.Number(stat.Quantile(m.delays, 0.99).Value),
			QuotaP50: report.Number(stat.Quantile(m.quotas, 0.5).Value), RaisedMean: report.Number(stat.Describe(m.blockMeans()).Value),
		}
		late := 0
		for _, s := range used {
			f.Cycles += len(s.Delays)
			f.Undone += s.Undone
			for _, d := range s.Delays {
				if time.Duration(d)*time.Microsecond >= lateCycle {
					late++
				}
			}
			if !math.IsInf(s.narrowedAfter(), 1) {
				f.Narrowed++
			}
		}
		f.Late = report.Number(float64(late+f.Undone) / float64(f.Cycles+f.Undone))
		r.Modes[mode] = f
		r.Order = append(r.Order, mode)
		r.Warnings = append(r.Warnings, f.warnings(mode)...)
	}
	r.Blocks = countBlocks(steps)
	if text := endWarning(e.Ended); text != "" {
		r.Warnings = append(r.Warnings, text)
	}
	if text := decidesClock(r.Blocks); text != "" && comparesClock(e.Modes) {
		r.Warnings = append(r.Warnings, text)
	}
	r.Claims = append(r.Claims, claims(e, apart)...)
	for i := range r.Claims {
		c := &r.Claims[i]
		c.Final = e.Ended.Planned() && c.Verdict != stat.Undecided
	}
	return r
}

// countBlocks returns the number of blocks with at least one step that is used.
func countBlocks(steps []Step) int {
	blocks := map[int]bool{}
	for _, s := range steps {
		if len(s.Void) == 0 {
			blocks[s.Block] = true
		}
	}
	return len(blocks)
}

// endWarning says why no verdict of an experiment with this end is final. It
// returns "" if the experiment ended as planned.
func endWarning(end report.End) string {
	switch {
	case end.Planned():
		return ""
	case end == report.EndHand:
		return "stopped by hand: no verdict is final, because a look at the results may have chosen the moment"
	case end == report.EndFailed:
		return "ended by an error: no verdict is final"
	}
	return "not ended, or run by an older version: no verdict is final"
}

func (f Figure) warnings(mode report.Mode) []string {
	var out []string
	if f.Steps == 0 {
		out = append(out, fmt.Sprintf("%s: no valid step", mode))
	}
	if f.Void > 0 {
		out = append(out, fmt.Sprintf("%s: %d of %d steps are void: something else disturbed the machine", mode, f.Void, f.Void+f.Steps))
	}
	if f.Steps > 0 && f.Steps < 100 {
		out = append(out, fmt.Sprintf("%s: %d steps are too few for an upper bound of their p99", mode, f.Steps))
	}
	return out
}

// Summary describes the steps of a run in one line.
func Summary(steps []Step) string {
	m := takeApart(steps)
	at := func(values []float64, q float64) string {
		return report.FormatNumber(report.Number(stat.Quantile(values, q).Value), 1)
	}
	text := fmt.Sprintf("event to write p50 %s p99 %s ms (%d of %d steps)  narrowed p50 %s ms  raised p50 %s p99 %s ms",
		at(m.answers, 0.5), at(m.answers, 0.99), len(m.answers), len(steps), at(m.narrowed, 0.5), at(m.raised, 0.5), at(m.raised, 0.99))
	if len(steps) > 0 && len(steps[0].Void) > 0 {
		text += "  void: " + steps[0].Void[0]
	}
	return text
}
