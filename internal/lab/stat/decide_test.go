package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// estimateAround returns an estimate of a value. The argument wide is half the
// width of its interval. Its bounds for claims are value − claim and value +
// claim.
func estimateAround(value, wide, claim float64) Estimate {
	return Estimate{Value: value, Blocks: 30, Enough: true, Low: value - wide, High: value + wide, ClaimLower: value - claim, ClaimUpper: value + claim}
}

func TestDecisions(t *testing.T) {
	few := estimateAround(1, 0.012, 0.01)
	few.Enough = false
	for name, c := range map[string]struct{ got, want Verdict }{
		"bound below the margin":     {AtMost(estimateAround(1, 0.012, 0.01), 1.03), Met},
		"too few blocks, or skewed":  {AtMost(few, 1.03), Undecided},
		"interval spans the margin":  {AtMost(estimateAround(1.02, 0.025, 0.02), 1.03), Undecided},
		"clearly above the margin":   {AtMost(estimateAround(1.2, 0.025, 0.02), 1.03), NotMet},
		"goodput above its limit":    {AtLeast(estimateAround(0.95, 0.02, 0.01), 0.9), Met},
		"goodput below its limit":    {AtLeast(estimateAround(0.80, 0.02, 0.01), 0.9), NotMet},
		"goodput around its limit":   {AtLeast(estimateAround(0.90, 0.02, 0.01), 0.9), Undecided},
		"nothing is met from nought": {AtMost(Ratio(nil, nil, paired.Blocks()), 1e9), Undecided},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

func TestClaimIsRefusedWhereTheControlCannotResolveIt(t *testing.T) {
	fine := ResolutionOf(estimateAround(1.002, 0.012, 0.01), 1.03)
	coarse := ResolutionOf(estimateAround(1.0, 0.05, 0.04), 1.03)
	biased := ResolutionOf(estimateAround(1.02, 0.006, 0.005), 1.03)
	slightlyBiased := ResolutionOf(estimateAround(1.005, 0.003, 0.002), 1.03)
	good, bad := estimateAround(0.99, 0.012, 0.01), estimateAround(1.5, 0.12, 0.1)
	rule := paired.Blocks()
	for name, c := range map[string]struct{ got, want Verdict }{
		"fine control":                              {NonInferior(good, fine, 1.03), Met},
		"coarse control":                            {NonInferior(good, coarse, 1.03), Refused},
		"biased control":                            {NonInferior(good, biased, 1.03), Refused},
		"bias too small to matter":                  {NonInferior(good, slightlyBiased, 1.03), Met},
		"damage stands out of the noise":            {NonInferior(bad, coarse, 1.03), NotMet},
		"damage within what equals differ by":       {NonInferior(estimateAround(1.045, 0.006, 0.005), coarse, 1.03), Refused},
		"no control at all (infinite interval)":     {NonInferior(good, ResolutionOf(Ratio(nil, nil, rule), 1.03), 1.03), Refused},
		"one block of control is no control either": {NonInferior(good, ResolutionOf(Ratio(Sample{1: 1}, Sample{1: 1}, rule), 1.03), 1.03), Refused},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

func TestWideningTheMarginNeverLosesAClaim(t *testing.T) {
	rank := map[Verdict]int{NotMet: 0, Undecided: 1, Met: 2}
	for _, e := range []Estimate{estimateAround(1, 0.02, 0.01), estimateAround(1.1, 0.12, 0.1), estimateAround(0.9, 0.02, 0.01)} {
		last := 0
		for margin := 0.5; margin < 2; margin += 0.005 {
			now := rank[AtMost(e, margin)]
			if now < last {
				t.Errorf("margin %.3f: verdict %q after a better one at a narrower margin", margin, AtMost(e, margin))
			}
			last = now
		}
	}
}

// logsAround returns the logarithms of n random ratios around a given one.
func logsAround(seed uint64, n int, ratio, noise float64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Log(ratio) + noise*rng.NormFloat64()
	}
	return v
}

func TestCompare(t *testing.T) {
	rule := paired.Blocks()
	of := func(ratio, noise float64) Comparison {
		return Comparison{Logs: logsAround(7, 48, ratio, noise), Margin: 1.03}
	}
	equal, unlike, small, vague := of(1, 0.005), of(1.5, 0.1), of(1.01, 0.002), of(1.01, 0.2)
	blind := equal
	blind.NoTie = true
	for name, c := range map[string]struct {
		all  []Comparison
		want []Verdict
	}{
		"none":                         {nil, []Verdict{}},
		"each kind":                    {[]Comparison{equal, unlike, small, vague}, []Verdict{Tie, Differs, Tie, Undecided}},
		"no tie without a control":     {[]Comparison{blind}, []Verdict{Undecided}},
		"a difference needs no margin": {[]Comparison{{Logs: unlike.Logs, Margin: 1.03, NoTie: true}}, []Verdict{Differs}},
	} {
		if got := Compare(c.all, rule); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestManyComparisonsClaimNoMoreThanOne uses comparisons without a true
// difference, so each verdict "differs" is false.
func TestManyComparisonsClaimNoMoreThanOne(t *testing.T) {
	const trials, comparisons = 600, 8
	rule := paired.Blocks().Planned(40)
	wrong := 0
	for trial := range trials {
		all := make([]Comparison, comparisons)
		for i := range all {
			all[i] = Comparison{Logs: logsAround(uint64(trial*comparisons+i), 40, 1, 0.1), Margin: 1.03}
		}
		if slices.Contains(Compare(all, rule), Differs) {
			wrong++
		}
	}
	// Allow three standard errors of a proportion in 600 trials: 2.7 percentage
	// points.
	if got := float64(wrong) / trials; got > 0.05+0.027 {
		t.Errorf("a false difference in %.1f %% of experiments with %d comparisons", 100*got, comparisons)
	}
}
