package stat

import (
	"math"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// A Verdict is the decision of an experiment about a claim.
type Verdict string

// The verdicts. A test that shows no difference does not show equality either:
// its verdict is Undecided. If a machine cannot distinguish two equal modes
// from two different ones, nothing can be judged on it. The verdict is then
// Refused.
const (
	Met       Verdict = "met"
	NotMet    Verdict = "not met"
	Undecided Verdict = "undecided"
	Refused   Verdict = "refused"
	Tie       Verdict = "tie"     // equal within the margin
	Differs   Verdict = "differs" // different

	// BoundedAbove and BoundedBelow decide no limit: they say that the bound which
	// the data give holds.
	BoundedAbove Verdict = "at most"
	BoundedBelow Verdict = "at least"
)

// AtMost decides the claim "the true value is below the limit". If e is a ratio
// and the limit a margin, this is the test for non-inferiority. The claim is
// met only if the upper bound of the mean and that of the median are below the
// limit.
func AtMost(e Estimate, limit float64) Verdict {
	return decide(e, e.ClaimUpper < limit, e.ClaimLower > limit)
}

// AtLeast decides the claim "the true value is above the limit".
func AtLeast(e Estimate, limit float64) Verdict {
	return decide(e, e.ClaimLower > limit, e.ClaimUpper < limit)
}

func decide(e Estimate, met, not bool) Verdict {
	switch {
	case e.Enough && met:
		return Met
	case e.Enough && not:
		return NotMet
	}
	return Undecided
}

// A Resolution is the result of the A/A control: how small a difference this
// machine can show.
type Resolution struct {
	Control   Estimate // ratio of the baseline to itself
	HalfWidth float64  // of the two-sided interval of Control
	Bias      float64  // |Control − 1| if the interval excludes 1, otherwise 0
	// Fine is true if the machine resolves the margin: HalfWidth is at most
	// margin − 1, and Bias is at most a third of that.
	Fine bool
}

// ResolutionOf judges an A/A control against a margin such as 1.03.
func ResolutionOf(control Estimate, margin float64) Resolution {
	r := Resolution{Control: control, HalfWidth: (control.High - control.Low) / 2}
	if control.Low > 1 || control.High < 1 {
		r.Bias = max(control.Value-1, 1-control.Value)
	}
	r.Fine = r.HalfWidth <= margin-1 && r.Bias <= (margin-1)/3
	return r
}

// NonInferior decides the claim that a ratio is at most the margin, with regard
// to the A/A control. If the control cannot resolve the margin, the claim is
// refused. There is one exception: the claim is not met if the lower bound of
// the ratio exceeds both the margin and the upper end of the control's
// interval.
func NonInferior(e Estimate, r Resolution, margin float64) Verdict {
	v := AtMost(e, margin)
	if r.Fine || v == NotMet && e.ClaimLower > r.Control.High {
		return v
	}
	return Refused
}

// A Comparison is the test of one ratio. It asks two questions: does the ratio
// differ from 1, and does it equal 1 within a margin?
type Comparison struct {
	Logs   []float64 // logarithms of the ratios within blocks
	Margin float64   // such as 1.03
	NoTie  bool      // the A/A control does not resolve the margin, so that a tie must not be claimed
}

// Compare judges all comparisons of an experiment together (Holm). The probability
// that any verdict is false is then at most rule.Spends, the part of the error
// probability Alpha that one look may use. A comparison is a tie if both one-sided
// tests against the margin hold (Schuirmann 1987). For one ratio, "it differs" and
// "it is a tie" cannot both be false, so each comparison counts once.
func Compare(all []Comparison, rule paired.Rule) []Verdict {
	p, kind := make([]float64, len(all)), make([]Verdict, len(all))
	for i, c := range all {
		p[i], kind[i] = rule.P(c.Logs, 1), Differs
		j := rule.Judge(c.Logs)
		if within := math.Log(c.Margin); !c.NoTie && math.Abs(j.Mean) < within && math.Abs(j.Median) < within {
			// rule.P is two-sided, but each of these two tests is one-sided.
			if tie := max(rule.P(c.Logs, c.Margin), rule.P(c.Logs, 1/c.Margin)) / 2; tie < p[i] || tie <= rule.Spends()/float64(len(all)) {
				p[i], kind[i] = tie, Tie
			}
		}
	}
	verdicts := make([]Verdict, len(all))
	for i, holds := range paired.Holm(p, rule.Spends()) {
		verdicts[i] = Undecided
		if holds {
			verdicts[i] = kind[i]
		}
	}
	return verdicts
}
