package stat

import "testing"

// around returns an estimate with bounds at the given distances.
func around(value, narrow, wide, stop float64) Estimate {
	return Estimate{
		Value: value, Blocks: 10,
		Lower: value - narrow, Upper: value + narrow,
		Low: value - wide, High: value + wide,
		StopLower: value - stop, StopUpper: value + stop,
	}
}

func TestDecisions(t *testing.T) {
	few := around(1, 0.01, 0.012, 0.02)
	few.Blocks = MinBlocks - 1
	for name, c := range map[string]struct {
		got, want Decision
	}{
		"bound clearly below the margin":        {AtMost(around(1, 0.01, 0.012, 0.02), 1.03), Decision{Met, true}},
		"met, but not at the stop level":        {AtMost(around(1, 0.02, 0.025, 0.04), 1.03), Decision{Met, false}},
		"met from few blocks is not final":      {AtMost(few, 1.03), Decision{Met, false}},
		"interval spans the margin":             {AtMost(around(1.02, 0.02, 0.025, 0.04), 1.03), Decision{Undecided, false}},
		"clearly above the margin":              {AtMost(around(1.2, 0.02, 0.025, 0.04), 1.03), Decision{NotMet, true}},
		"goodput above its limit":               {AtLeast(around(0.95, 0.01, 0.02, 0.03), 0.9), Decision{Met, true}},
		"goodput below its limit":               {AtLeast(around(0.80, 0.01, 0.02, 0.03), 0.9), Decision{NotMet, true}},
		"equal within the margin":               {Equivalent(around(1.01, 0.01, 0.012, 0.015), 1.03), Decision{Tie, true}},
		"small, real, but within the margin":    {Equivalent(around(1.02, 0.005, 0.006, 0.008), 1.03), Decision{Tie, true}},
		"different":                             {Equivalent(around(1.3, 0.1, 0.12, 0.2), 1.03), Decision{Differs, true}},
		"no difference seen, equality unproven": {Equivalent(around(1.01, 0.1, 0.12, 0.2), 1.03), Decision{Undecided, false}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}

func TestClaimIsRefusedWhereTheControlCannotResolveIt(t *testing.T) {
	fine := ResolutionOf(around(1.002, 0.01, 0.012, 0.02), 1.03)
	coarse := ResolutionOf(around(1.0, 0.04, 0.05, 0.08), 1.03)
	biased := ResolutionOf(around(1.02, 0.005, 0.006, 0.01), 1.03)
	slightlyBiased := ResolutionOf(around(1.005, 0.002, 0.003, 0.01), 1.03)
	good, bad := around(0.99, 0.01, 0.012, 0.02), around(1.5, 0.1, 0.12, 0.2)
	for name, c := range map[string]struct {
		got, want Verdict
	}{
		"fine control":                              {NonInferior(good, fine, 1.03).Verdict, Met},
		"coarse control":                            {NonInferior(good, coarse, 1.03).Verdict, Refused},
		"biased control":                            {NonInferior(good, biased, 1.03).Verdict, Refused},
		"bias too small to matter":                  {NonInferior(good, slightlyBiased, 1.03).Verdict, Met},
		"damage stands out of the noise":            {NonInferior(bad, coarse, 1.03).Verdict, NotMet},
		"damage within what equals differ by":       {NonInferior(around(1.045, 0.005, 0.006, 0.01), coarse, 1.03).Verdict, Refused},
		"no control at all (infinite interval)":     {NonInferior(good, ResolutionOf(Ratio(nil, nil), 1.03), 1.03).Verdict, Refused},
		"one block of control is no control either": {NonInferior(good, ResolutionOf(Ratio(Sample{1: 1}, Sample{1: 1}), 1.03), 1.03).Verdict, Refused},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

func TestWideningTheMarginNeverLosesAClaim(t *testing.T) {
	rank := map[Verdict]int{NotMet: 0, Undecided: 1, Met: 2}
	for _, e := range []Estimate{around(1, 0.01, 0.02, 0.03), around(1.1, 0.1, 0.12, 0.2), around(0.9, 0.01, 0.02, 0.03)} {
		last := 0
		for margin := 0.5; margin < 2; margin += 0.005 {
			now := rank[AtMost(e, margin).Verdict]
			if now < last {
				t.Errorf("margin %.3f: verdict %q after a better one at a narrower margin", margin, AtMost(e, margin).Verdict)
			}
			last = now
		}
	}
}
