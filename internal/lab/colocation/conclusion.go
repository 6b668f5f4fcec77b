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
	// Claim is the name of the claim that has the same bounds, and Verdict its
	// verdict. Both are empty for what is counted.
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
	// Each bound is wrong with probability Error.
	Estimate report.Number `json:"estimate"`
	Lower    report.Number `json:"lower_bound"`
	Upper    report.Number `json:"upper_bound"`
	Error    float64       `json:"bound_error"`
}

// concluded returns the conclusions that the modes allow.
func (s *Switched) concluded() []Conclusion {
	list := []Conclusion{}
	if slices.Contains(s.Experiment.Modes, report.Tenon) {
		list = append(list, s.work(s.mode(report.Tenon)))
	}
	for _, c := range s.Questions {
		var about Subject
		var eighths int
		switch {
		case c.Of == report.Tenon && c.To == report.Frozen && c.Measure == report.P90.Key:
			about = AboutAlone
		case c.Of.Spec().Eighths > 0 && c.To == report.Tenon && c.Measure == report.WaitingTime.Key:
			about, eighths = AboutRequests, c.Of.Spec().Eighths
		default:
			continue
		}
		list = append(list, Conclusion{
			About: about, Says: c.says(), Claim: c.Name, Verdict: c.Verdict, Hindered: c.Hindered, Final: s.isFinal(), Eighths: eighths,
			Estimate: c.Effect.Ratio, Lower: c.Effect.Lower, Upper: c.Effect.Upper, Error: c.Effect.Error,
		})
	}
	return list
}

// work says what the batch work did under Tenon. Its rate has bounds by the rates of the
// starts, whose error the looks share.
func (s *Switched) work(m SwitchedMode) Conclusion {
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
	c := Conclusion{About: AboutWork, Says: Counted, Final: s.isFinal(), Amount: m.Done, Seconds: m.Seconds, Error: stat.RatioError / float64(max(len(s.Experiment.Looks), 1))}
	_, c.Lower, c.Upper = stat.MeanOfStarts(rates, c.Error)
	if c.Estimate = m.DoneRate; m.Windows == 0 {
		c.Says, c.Hindered = CannotTell, TooFewRounds
	}
	return c
}

// says returns what the bounds of a claim say.
func (c SwitchedClaim) says() Saying {
	switch {
	case c.Verdict == stat.Undecided:
		return CannotTell
	case c.Asks == stat.AsksAtMost && c.Effect.Upper <= 1:
		return NotLonger
	case c.Asks == stat.AsksAtMost:
		return AtMost
	case c.Effect.Lower <= 1:
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
			return "How much batch work was done under Tenon? " + s.untold(c)
		}
		minutes, unused := fmt.Sprintf("In %.1f measured minutes under Tenon ", c.Seconds/60), fmt.Sprintf(" on CPU time that %s did not use.", service)
		if s.Experiment.Own != nil {
			return minutes + fmt.Sprintf("the batch work did what takes it %.1f minutes alone%s,", float64(c.Amount)/60, rateText(c, "a minute", 2)) + unused
		}
		return minutes + fmt.Sprintf("ffmpeg made %.0f frames%s", float64(c.Amount), rateText(c, "a second", 1)) + unused
	case AboutAlone:
		const p90, alone = "the time within which 90 of 100 answers came (P90)", "than alone, beside frozen batch work"
		switch c.Says {
		case NotLonger:
			return fmt.Sprintf("In the typical round %s was under Tenon no longer %s: at least %s %% less%s.", p90, alone, tenths(100*float64(1-c.Upper), math.Floor), spanText(c))
		case AtMost:
			return fmt.Sprintf("In the typical round %s was under Tenon at most %s %% longer %s%s.", p90, tenths(100*float64(c.Upper-1), math.Ceil), alone, spanText(c))
		}
		return fmt.Sprintf("Was %s longer under Tenon %s? %s", p90, alone, s.untold(c))
	case AboutRequests:
		requests := fmt.Sprintf("With CPU requests for the batch pod of %s of those of %s, ", requestWords[c.Eighths], service)
		switch c.Says {
		case AtLeast:
			return requests + fmt.Sprintf("%s waited in the typical round at least %s times as long for its CPU as under Tenon%s.", service, tenths(float64(c.Lower), math.Floor), spanText(c))
		case NotShown:
			return requests + fmt.Sprintf("%s is not shown to wait longer for its CPU in the typical round than under Tenon%s.", service, spanText(c))
		}
		return requests + fmt.Sprintf("did %s wait longer for its CPU than under Tenon? %s", service, s.untold(c))
	}
	return ""
}

// untold says why a question has no answer, and the interval if there is one.
func (s *Switched) untold(c Conclusion) string {
	return fmt.Sprintf("%s of %s cannot tell%s. %s", textlayout.Plural(s.RoundsUsed, "round", "rounds"), textlayout.Plural(s.StartsUsed, "start", "starts"), spanText(c), hindranceWords[c.Hindered])
}

// rateText prints the rate of the work with the interval of the mean of the starts.
func rateText(c Conclusion, per string, decimals int) string {
	text := fmt.Sprintf(" (%s %s", report.FormatNumber(c.Estimate, decimals), per)
	if c.Lower.Known() && c.Upper.Known() {
		text += fmt.Sprintf("; %s interval of the mean of the starts %s to %s", confidence(c), rounded(float64(c.Lower), decimals, math.Floor), rounded(float64(c.Upper), decimals, math.Ceil))
	}
	return text + ")"
}

// spanText prints the interval of a ratio in brackets. It returns "" if there is none.
func spanText(c Conclusion) string {
	if !c.Lower.Known() || !c.Upper.Known() {
		return ""
	}
	return fmt.Sprintf(" (%s interval %s)", confidence(c), outward(c.Lower, c.Upper, " to "))
}

// outward prints the bounds of a ratio, as changes in per cent or as factors. Each is
// rounded away from the interval, so that the printed bound holds, too.
func outward(lower, upper report.Number, joint string) string {
	if upper >= 2 {
		return "×" + tenths(float64(lower), math.Floor) + joint + "×" + tenths(float64(upper), math.Ceil)
	}
	return signedTenths(100*float64(lower-1), math.Floor) + joint + signedTenths(100*float64(upper-1), math.Ceil) + " %"
}

// confidence is the confidence of an interval whose bounds are each wrong with
// probability c.Error. It is rounded down.
func confidence(c Conclusion) string {
	percent, decimals := 100*(1-2*c.Error), 1
	if math.Abs(percent-math.Round(percent)) < 1e-6 {
		decimals = 0
	}
	return rounded(percent, decimals, math.Floor) + " %"
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
