package colocation

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// A Subject is what a conclusion is about.
type Subject string

// The subjects, in the order of the conclusions.
const (
	AboutWork     Subject = "work"     // what the batch work did under Tenon
	AboutAlone    Subject = "alone"    // P90 under Tenon, to that of the service alone
	AboutRequests Subject = "requests" // waiting beside batch work with CPU requests, to that under Tenon
)

// A Saying is what a conclusion says about its subject.
type Saying string

// The sayings.
const (
	Counted    Saying = "counted"     // the amount of work, and its rate with bounds
	AtMost     Saying = "at most"     // the upper bound
	AtLeast    Saying = "at least"    // the lower bound
	NotLonger  Saying = "not longer"  // the upper bound, which is 1 or less
	NotShown   Saying = "not shown"   // the lower bound is 1 or less, so that no difference is shown
	CannotTell Saying = "cannot tell" // nothing: Hindered says why
)

// A Conclusion is one of the sentences with which the report ends, as data.
type Conclusion struct {
	About Subject `json:"about"`
	Says  Saying  `json:"says"`
	// Claim is the name of the claim about the same ratio, and Verdict its verdict. Both
	// are empty for what is counted.
	Claim    string       `json:"claim,omitempty"`
	Verdict  stat.Verdict `json:"verdict,omitempty"`
	Hindered Hindrance    `json:"hindered,omitempty"`
	// Final says that no look at the results chose the moment of the conclusion: the
	// experiment had ended by its plan, or was at a planned look. A conclusion that is
	// not final is an interim one.
	Final bool `json:"final"`
	// Eighths is the CPU request of the batch pod, in eighths of that of the service. It
	// is 0 for the other subjects.
	Eighths int `json:"request_eighths,omitempty"`
	// Amount is the work that was done in Seconds: frames, or with other batch work
	// the seconds that it takes for as much work alone.
	Amount  report.Number `json:"amount,omitempty"`
	Seconds float64       `json:"seconds,omitempty"`
	// Estimate is the ratio of the typical round, or the rate of the work per second.
	// Each bound is wrong with probability Error. It is so small that all bounds of all
	// conclusions, at all looks, are right together in all experiments but RatioError.
	// So the bounds are wider than those of the claim, which has that error for itself.
	Estimate report.Number `json:"estimate"`
	Lower    report.Number `json:"lower_bound"`
	Upper    report.Number `json:"upper_bound"`
	Error    float64       `json:"bound_error"`
	// Whole is the same ratio over the whole run, about requests only.
	Whole *stat.Effect `json:"over_the_run,omitempty"`
	// Tail and Waits are the P99 of all requests and the waiting for a CPU in the same
	// typical round, about the service alone only. A P90 that is no longer does not say
	// that nothing is.
	Tail  *stat.Effect `json:"p99,omitempty"`
	Waits *stat.Effect `json:"waiting,omitempty"`
}

// bounds is the number of bounds of a conclusion about a subject.
func (about Subject) bounds() int {
	return map[Subject]int{AboutWork: 2, AboutAlone: 6, AboutRequests: 4}[about]
}

// allP99 is the P99 of all requests of a window.
func allP99(r report.Run) float64 {
	if r.WithStalls == nil {
		return math.NaN()
	}
	return report.Positive(r.WithStalls.P99)
}

// subject returns what a claim is the subject of, if a conclusion is about its ratio.
func (c SwitchedClaim) subject() (about Subject, eighths int) {
	switch {
	case c.Of == report.Tenon && c.To == report.Frozen && c.Measure == report.P90.Key:
		return AboutAlone, 0
	case c.Of.Spec().Eighths > 0 && c.To == report.Tenon && c.Measure == report.WaitingTime.Key:
		return AboutRequests, c.Of.Spec().Eighths
	}
	return "", 0
}

// SentenceError is the probability with which each bound of the last sentences may be
// wrong, if so many looks are planned. The sentences are read together, so they share
// the error of one answer (Bonferroni).
func SentenceError(modes []report.Mode, looks int) float64 {
	bounds := 0
	if slices.Contains(modes, report.Tenon) {
		bounds = AboutWork.bounds()
	}
	for _, c := range questions(modes) {
		about, _ := c.subject()
		bounds += about.bounds()
	}
	return stat.RatioError / float64(max(looks, 1)*max(bounds, 1))
}

// concluded returns the conclusions that the modes allow.
func (s *Switched) concluded() []Conclusion {
	list := []Conclusion{}
	alpha := SentenceError(s.Experiment.Modes, len(s.Experiment.Looks))
	if slices.Contains(s.Experiment.Modes, report.Tenon) {
		list = append(list, s.work(s.mode(report.Tenon), alpha))
	}
	for _, claim := range s.Questions {
		about, eighths := claim.subject()
		if about == "" {
			continue
		}
		e := stat.EffectOf(ratios(claim.Of, claim.To, claim.metric, s.rounds), alpha)
		c := Conclusion{
			About: about, Claim: claim.Name, Verdict: claim.Verdict, Hindered: claim.Hindered, Final: s.isFinal(), Eighths: eighths,
			Estimate: e.Ratio, Lower: e.Lower, Upper: e.Upper, Error: e.Error,
		}
		c.Says = c.says()
		switch about {
		case AboutAlone:
			tail := stat.EffectOf(ratios(claim.Of, claim.To, allP99, s.rounds), alpha)
			waits := stat.EffectOf(ratios(claim.Of, claim.To, report.Waiting, s.rounds), alpha)
			c.Tail, c.Waits = &tail, &waits
		case AboutRequests:
			c.Whole = s.overTheRun(claim, alpha)
		}
		list = append(list, c)
	}
	return list
}

// work says what the batch work did under Tenon. Its rate has bounds by the rates of the
// starts.
func (s *Switched) work(m SwitchedMode, alpha float64) Conclusion {
	amounts, seconds := map[int]float64{}, map[int]float64{}
	for _, r := range s.rounds {
		w := r.windows[report.Tenon]
		amounts[r.start] += w.Frames
		seconds[r.start] += w.Length.Seconds()
	}
	var rates []float64
	for start, amount := range amounts {
		if seconds[start] > 0 {
			rates = append(rates, amount/seconds[start])
		}
	}
	slices.Sort(rates) // a sum must not depend on the order of a map
	c := Conclusion{About: AboutWork, Says: Counted, Final: s.isFinal(), Amount: m.Done, Seconds: m.Seconds, Estimate: m.DoneRate, Error: alpha}
	_, c.Lower, c.Upper = stat.MeanOfStarts(rates, alpha)
	switch stray := s.mode(report.Frozen).DoneRate; {
	case m.Windows == 0:
		c.Says, c.Hindered = CannotTell, TooFewRounds
	case stray > strayWork*m.DoneRate: // not if nothing was frozen: then it is not known
		c.Says, c.Hindered = CannotTell, WorkStrayed
	}
	return c
}

// says returns what the bounds of a conclusion about a ratio say.
func (c Conclusion) says() Saying {
	alone := c.About == AboutAlone
	switch {
	case c.Verdict == stat.Undecided:
		return CannotTell
	case alone && c.Upper <= 1:
		return NotLonger
	case alone && c.Verdict == stat.NotMet && c.Lower > 1:
		return AtLeast // an upper bound beyond the limit would hide that the limit is missed
	case alone:
		return AtMost
	case c.Lower <= 1:
		return NotShown
	}
	return AtLeast
}

// requestWords are the words for CPU requests, in eighths of those of the service.
var requestWords = map[int]string{1: "an eighth", 4: "half", 5: "five eighths", 8: "the size"}

// sentence says a conclusion. A number in it is the bound that the claim has: it is
// rounded so that the sentence stays true.
func (s *Switched) sentence(c Conclusion) string {
	service, _ := fullExperiment{experiment: s.Experiment}.workload()
	switch c.About {
	case AboutWork:
		if c.Says == CannotTell {
			return "How much batch work was done under Tenon? " + s.untold(c, "")
		}
		minutes, unused := fmt.Sprintf("In %.1f measured minutes under Tenon ", c.Seconds/60), fmt.Sprintf(" on CPU time that %s did not use.", service)
		if s.Experiment.Own != nil {
			return minutes + fmt.Sprintf("the batch work did what takes it %.1f minutes alone%s,", float64(c.Amount)/60, rateText(c, "a minute", 2)) + unused
		}
		return minutes + fmt.Sprintf("ffmpeg made %.0f frames%s", float64(c.Amount), rateText(c, "a second", 1)) + unused
	case AboutAlone:
		const p90, alone = "the time within which 90 of 100 answers came (P90)", "than alone, beside frozen batch work"
		var text string
		switch c.Says {
		case NotLonger:
			text = fmt.Sprintf("no longer %s: at least %s %% less", alone, tenths(100*float64(1-c.Upper), math.Floor))
		case AtMost:
			text = fmt.Sprintf("at most %s %% longer %s", tenths(100*float64(c.Upper-1), math.Ceil), alone)
		case AtLeast:
			text = fmt.Sprintf("at least %s %% longer %s", tenths(100*float64(c.Lower-1), math.Floor), alone)
		default:
			return fmt.Sprintf("Was %s longer under Tenon %s? %s", p90, alone, s.untold(c, spanText(c.Lower, c.Upper)))
		}
		return fmt.Sprintf("In the typical round %s was under Tenon %s%s. Against alone: P99 %s, waiting for a CPU %s.",
			p90, text, spanText(c.Lower, c.Upper), changeText(*c.Tail), changeText(*c.Waits))
	case AboutRequests:
		requests := fmt.Sprintf("With CPU requests for the batch pod of %s of those of %s, ", requestWords[c.Eighths], service)
		switch c.Says {
		case AtLeast:
			return requests + fmt.Sprintf("%s waited in the typical round at least %s times as long for its CPU as under Tenon%s%s.",
				service, tenths(float64(c.Lower), math.Floor), spanText(c.Lower, c.Upper), runText(c.Whole))
		case NotShown:
			return requests + fmt.Sprintf("%s is not shown to wait longer for its CPU in the typical round than under Tenon%s.", service, spanText(c.Lower, c.Upper))
		}
		return requests + fmt.Sprintf("did %s wait longer for its CPU than under Tenon? %s", service, s.untold(c, spanText(c.Lower, c.Upper)))
	}
	return ""
}

// untold says why a question has no answer, and the interval if there is one.
func (s *Switched) untold(c Conclusion, span string) string {
	return fmt.Sprintf("%s of %s cannot tell%s. %s", textlayout.Plural(s.RoundsUsed, "round", "rounds"), textlayout.Plural(s.StartsUsed, "start", "starts"), span, hindranceWords[c.Hindered])
}

// runText says the ratio over the whole run, which is another one than that of the
// typical round.
func runText(e *stat.Effect) string {
	if e == nil || !e.Lower.Known() || !e.Upper.Known() {
		return ""
	}
	return fmt.Sprintf(", and over the whole run %s times as long%s", report.FormatNumber(e.Ratio, 1), spanText(e.Lower, e.Upper))
}

// rateText prints the rate of the work with the interval of the mean of the starts.
func rateText(c Conclusion, per string, decimals int) string {
	text := fmt.Sprintf(" (%s %s", report.FormatNumber(c.Estimate, decimals), per)
	if c.Lower.Known() && c.Upper.Known() {
		text += fmt.Sprintf("; mean of the starts %s to %s", rounded(float64(c.Lower), decimals, math.Floor), rounded(float64(c.Upper), decimals, math.Ceil))
	}
	return text + ")"
}

// spanText prints the interval of a ratio in brackets. It returns "" if there is none.
func spanText(lower, upper report.Number) string {
	if !lower.Known() || !upper.Known() {
		return ""
	}
	return fmt.Sprintf(" (%s)", outward(lower, upper, " to "))
}

// outward prints the bounds of a ratio, as changes in per cent or as factors. Each is
// rounded away from the interval, so that the printed bound holds, too.
func outward(lower, upper report.Number, joint string) string {
	if upper >= 2 {
		return "×" + tenths(float64(lower), math.Floor) + joint + "×" + tenths(float64(upper), math.Ceil)
	}
	return signedTenths(100*float64(lower-1), math.Floor) + joint + signedTenths(100*float64(upper-1), math.Ceil) + " %"
}

// tenths prints a number with one decimal, rounded by a function.
func tenths(v float64, round func(float64) float64) string { return rounded(v, 1, round) }

// rounded prints a number with so many decimals, rounded by a function. A number that
// has no more decimals stays, although it may not be exact in binary.
func rounded(v float64, decimals int, round func(float64) float64) string {
	scale := math.Pow10(decimals)
	if nearest := math.Round(scale * v); math.Abs(nearest-scale*v) < 1e-6 {
		return report.FormatNumber(nearest/scale, decimals)
	}
	return report.FormatNumber(round(scale*v)/scale, decimals)
}

// signedTenths prints a number as tenths does, with its sign.
func signedTenths(v float64, round func(float64) float64) string {
	text, negative := strings.CutPrefix(tenths(v, round), "-")
	switch {
	case text == "0.0":
		return text
	case negative:
		return "−" + text
	}
	return "+" + text
}
