package stat

// A Verdict is what an experiment may say about a claim.
type Verdict string

// The verdicts. A test that fails to show a difference does not show
// equality, hence Undecided; and a harness that cannot tell two equal things
// apart from two different ones must not judge, hence Refused.
const (
	Met       Verdict = "met"
	NotMet    Verdict = "not met"
	Undecided Verdict = "undecided"
	Refused   Verdict = "refused"
	Tie       Verdict = "tie"     // shown to be equal within the margin
	Differs   Verdict = "differs" // shown to be different
)

// A Decision is a verdict, and whether it may end the experiment.
type Decision struct {
	Verdict Verdict
	// Final says that the bound at StopLevel gives the same verdict, from
	// at least MinBlocks blocks: more blocks would not be expected to change it.
	Final bool
}

// AtMost decides the claim "the truth is below limit". With a ratio and a
// margin it is the test for non-inferiority: met only when the upper
// one-sided 95 % bound is below the margin.
func AtMost(e Estimate, limit float64) Decision {
	return decide(e, e.Upper < limit, e.StopUpper < limit, e.Lower > limit, e.StopLower > limit)
}

// AtLeast decides the claim "the truth is above limit".
func AtLeast(e Estimate, limit float64) Decision {
	return decide(e, e.Lower > limit, e.StopLower > limit, e.Upper < limit, e.StopUpper < limit)
}

func decide(e Estimate, met, metStop, not, notStop bool) Decision {
	enough := !e.Few()
	switch {
	case met:
		return Decision{Met, enough && metStop}
	case not:
		return Decision{NotMet, enough && notStop}
	}
	return Decision{Verdict: Undecided}
}

// Equivalent decides whether a ratio is 1 within a factor of margin: a tie if
// both one-sided bounds lie inside (two one-sided tests, Schuirmann 1987),
// a difference if the two-sided interval leaves out 1.
func Equivalent(e Estimate, margin float64) Decision {
	enough := !e.Few()
	switch {
	case e.Lower > 1/margin && e.Upper < margin:
		return Decision{Tie, enough && e.StopLower > 1/margin && e.StopUpper < margin}
	case e.Low > 1 || e.High < 1:
		return Decision{Differs, enough && (e.StopLower > 1 || e.StopUpper < 1)}
	}
	return Decision{Verdict: Undecided}
}

// A Resolution is what the A/A control showed: how well this machine tells
// two equal modes apart.
type Resolution struct {
	Control   Estimate // ratio of the baseline to itself
	HalfWidth float64  // of the two-sided interval of Control
	Bias      float64  // |Control − 1| where the interval leaves out 1, else 0
	// Fine says that a margin can be resolved here: HalfWidth is at most
	// margin − 1, and a significant bias at most a third of that.
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

// NonInferior decides "at most margin" with the A/A control at hand: where the
// control cannot resolve the margin, the claim is refused. A ratio whose lower
// bound exceeds the margin and all that the control saw between equals is not met even
// on a coarse machine: noise excuses no damage that stands out of it.
func NonInferior(e Estimate, r Resolution, margin float64) Decision {
	d := AtMost(e, margin)
	if r.Fine || d.Verdict == NotMet && e.Lower > r.Control.High {
		return d
	}
	return Decision{Verdict: Refused}
}
