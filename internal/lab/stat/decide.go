package stat

// A Verdict is the result of an experiment for a claim.
type Verdict string

// The verdicts. A test that does not show a difference does not show equality,
// so its verdict is Undecided. A machine that cannot distinguish two equal
// modes from two different ones must not judge, so its verdict is Refused.
const (
	Met       Verdict = "met"
	NotMet    Verdict = "not met"
	Undecided Verdict = "undecided"
	Refused   Verdict = "refused"
	Tie       Verdict = "tie"     // equal within the margin
	Differs   Verdict = "differs" // different
)

// A Decision is a verdict with its finality.
type Decision struct {
	Verdict Verdict
	// Final is true if the bound at StopLevel gives the same verdict from at
	// least MinBlocks blocks. More blocks are not expected to change it.
	Final bool
}

// AtMost decides the claim "the true value is below limit". For a ratio and a
// margin this is the test for non-inferiority: the claim is met only if the
// upper one-sided 95 % bound is below the margin.
func AtMost(e Estimate, limit float64) Decision {
	return decide(e, e.Upper < limit, e.StopUpper < limit, e.Lower > limit, e.StopLower > limit)
}

// AtLeast decides the claim "the true value is above limit".
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

// Equivalent decides whether a ratio is 1 within a factor of margin. It is a
// tie if both one-sided bounds lie within the margin (two one-sided tests,
// Schuirmann 1987), and a difference if the two-sided interval excludes 1.
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

// A Resolution is the result of the A/A control: how well this machine
// distinguishes two equal modes.
type Resolution struct {
	Control   Estimate // ratio of the baseline to itself
	HalfWidth float64  // of the two-sided interval of Control
	Bias      float64  // |Control − 1| if the interval excludes 1, otherwise 0
	// Fine is true if this machine resolves the margin: HalfWidth is at most
	// margin − 1, and a significant bias is at most a third of that.
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

// NonInferior decides "at most margin" and takes the A/A control into account.
// If the control cannot resolve the margin, the claim is refused. However, a
// ratio is not met, even on a coarse machine, if its lower bound exceeds both
// the margin and the differences that the control shows between equal modes.
func NonInferior(e Estimate, r Resolution, margin float64) Decision {
	d := AtMost(e, margin)
	if r.Fine || d.Verdict == NotMet && e.Lower > r.Control.High {
		return d
	}
	return Decision{Verdict: Refused}
}
