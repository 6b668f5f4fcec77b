package paired

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// draw returns n values. law draws each of them.
func draw(rng *rand.Rand, n int, law func(*rand.Rand) float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = law(rng)
	}
	return v
}

func normal(mean, sd float64) func(*rand.Rand) float64 {
	return func(rng *rand.Rand) float64 { return mean + sd*rng.NormFloat64() }
}

// badNowAndThen draws from a mode that is bad by a factor of e² in one pair of
// ten.
func badNowAndThen(rng *rand.Rand) float64 {
	v := 0.05 * rng.NormFloat64()
	if rng.Float64() < 0.1 {
		v += 2
	}
	return v
}

func TestEachLookSpendsItsPartOfTheError(t *testing.T) {
	r := Blocks()
	if got := r.Spends(); got != 0.0125 {
		t.Errorf("four looks spend %v each, want 0.0125", got)
	}
	if got := r.Planned(45); got.Spends() != 0.05 || !got.IsLook(45) || got.IsLook(12) || got.Last() != 45 {
		t.Errorf("a plan of 45 pairs: %+v spends %v", got, got.Spends())
	}
}

func TestClaimsOfTheWholeRuleAreRarelyFalse(t *testing.T) {
	const trials = 2000
	for name, c := range map[string]struct {
		law   func(*rand.Rand) float64
		limit float64 // log of the ratio: the truth, so that every claim is false
		most  float64
	}{
		"normal":            {normal(0, 0.1), 0, 0.055},
		"bad in one of ten": {badNowAndThen, 0.2, 0.075},
		"exponential":       {func(rng *rand.Rand) float64 { return rng.ExpFloat64() }, 1, 0.075},
	} {
		rng := rand.New(rand.NewPCG(1, 1))
		r := Blocks()
		met := 0
		for range trials {
			v := draw(rng, r.Last(), c.law)
			if slices.ContainsFunc(r.Looks, func(n int) bool { return r.Judge(v[:n]).ShowsBelow(math.Exp(c.limit)) }) {
				met++
			}
		}
		// Allow three standard errors of a proportion in 2000 trials: 1.5
		// percentage points.
		if got := float64(met) / trials; got > c.most+0.015 {
			t.Errorf("%s: a false claim in %.1f %% of %d experiments, want at most %.1f %%", name, 100*got, trials, 100*c.most)
		}
	}
}

func TestMedianBoundsHoldForEveryDistribution(t *testing.T) {
	const trials = 4000
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{5, 7, 12, 30} {
		missed := 0
		for range trials {
			if BoundsOf(draw(rng, n, func(r *rand.Rand) float64 { return math.Exp(3 * r.NormFloat64()) }), 0.05).MedianUpper < 1 {
				missed++
			}
		}
		if got := float64(missed) / trials; got > 0.05+0.0105 {
			t.Errorf("%d values: the upper bound misses the median in %.1f %%", n, 100*got)
		}
	}
}

func TestMedianHasNoBoundFromTooFewValues(t *testing.T) {
	// All five values lie above the median with probability 1/32 = 3.1 %.
	if b := BoundsOf([]float64{1, 2, 3, 4}, 0.05); !math.IsInf(b.MedianLower, -1) || !math.IsInf(b.MedianUpper, 1) {
		t.Errorf("four values: %+v", b)
	}
	if b := BoundsOf([]float64{1, 2, 3, 4, 5}, 0.05); b.MedianLower != 1 || b.MedianUpper != 5 {
		t.Errorf("five values: %+v", b)
	}
}

func TestFewPairsDecideOnlyLargeEffects(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	large, small := draw(rng, 12, normal(math.Log(20), 0.3)), draw(rng, 12, normal(math.Log(0.9), 0.01))
	r := Blocks()
	if !r.Judge(large).ShowsAbove(5) {
		t.Error("12 pairs do not show that a ratio of 20 is above 5")
	}
	if r.Judge(small).ShowsBelow(1) {
		t.Error("12 pairs claim a difference that a rare bad state could undo")
	}
	if r.Judge(large[:11]).ShowsAbove(5) {
		t.Error("11 pairs claim something: the rule wants 12")
	}
	if more := draw(rng, 48, normal(math.Log(0.9), 0.01)); !r.Judge(more).ShowsBelow(1) {
		t.Error("48 pairs do not show a difference of 10 % with noise of 1 %")
	}
}

func TestSkewedSampleNeedsMorePairs(t *testing.T) {
	v := []float64{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3.1, 9}
	r := Blocks()
	if j := r.Judge(v); j.Skew < SkewLimit || j.Enough || j.ShowsAbove(1) {
		t.Errorf("12 values with skewness %.1f: %+v", j.Skew, j)
	}
	if j := r.Judge(append(v, v...)); !j.Enough || !j.ShowsAbove(1) {
		t.Errorf("24 values with skewness %.1f: %+v", j.Skew, j)
	}
}

func TestMeanAndMedianMustAgree(t *testing.T) {
	// Most pairs are above 1, but the mean is below 1.
	v := draw(rand.New(rand.NewPCG(4, 4)), 48, func(rng *rand.Rand) float64 {
		if rng.Float64() < 0.3 {
			return -3 + 0.1*rng.NormFloat64()
		}
		return 0.1 + 0.02*rng.NormFloat64()
	})
	r := Blocks()
	if j := r.Judge(v); j.ShowsBelow(1) || j.ShowsAbove(1) || r.P(v, 1) != 1 {
		t.Errorf("mean %.2f below 0 and median %.2f above it, and yet a claim (p %.3f)", j.Mean, j.Median, r.P(v, 1))
	}
}

// TestPAgreesWithTheBounds compares p with the significance level of one interim
// analysis (look). If p is below the level, the bounds at that level must
// exclude the limit. If p is larger, they must include it.
func TestPAgreesWithTheBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	r := Blocks()
	claims := 0
	for range 2000 {
		v := draw(rng, 12+rng.IntN(50), func(rng *rand.Rand) float64 { return 0.1 - 0.3*(rng.ExpFloat64()-1) })
		j := r.Judge(v)
		bound, p := j.ShowsAbove(1) || j.ShowsBelow(1), r.P(v, 1) <= 2*r.Spends()
		if bound != p {
			t.Fatalf("%d values, %+v: bounds %v, p %v", len(v), j.Bounds, bound, r.P(v, 1))
		}
		if bound {
			claims++
		}
	}
	if claims < 100 || claims > 1900 {
		t.Errorf("%d of 2000 samples allow a claim: the test compares too little", claims)
	}
}

func TestPIsTheSameFromBothSides(t *testing.T) {
	v := draw(rand.New(rand.NewPCG(6, 6)), 40, func(rng *rand.Rand) float64 { return 0.5 + rng.ExpFloat64() })
	turned := make([]float64, len(v))
	for i := range v {
		turned[i] = -v[i]
	}
	if a, b := Blocks().P(v, 2), Blocks().P(turned, 0.5); math.Abs(a-b) > 1e-12 {
		t.Errorf("p = %v, and %v for the inverse ratio", a, b)
	}
}

func TestHolm(t *testing.T) {
	for name, c := range map[string]struct {
		p    []float64
		want []bool
	}{
		"none":                       {nil, []bool{}},
		"one":                        {[]float64{0.04}, []bool{true}},
		"each alone would hold":      {[]float64{0.04, 0.03}, []bool{false, false}},
		"the first opens the second": {[]float64{0.04, 0.02}, []bool{true, true}},
		"stops at the first":         {[]float64{0.001, 0.2, 0.04, 0.024}, []bool{true, false, false, false}},
		"not a number":               {[]float64{math.NaN(), 0.001}, []bool{false, true}},
	} {
		if got := Holm(c.p, 0.05); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDegenerateSamplesClaimNothingFalse(t *testing.T) {
	r := Blocks()
	for name, v := range map[string][]float64{"none": nil, "one": {1}, "two": {1, 1}} {
		if j := r.Judge(v); j.ShowsBelow(100) || j.ShowsAbove(0.01) || r.P(v, 1) != 1 {
			t.Errorf("%s: %+v", name, j)
		}
	}
	same := slices.Repeat([]float64{0.5}, 48)
	if j := r.Judge(same); !j.ShowsAbove(1) || j.ShowsAbove(math.Exp(0.5)) || j.ShowsBelow(math.Exp(0.5)) {
		t.Errorf("equal values: %+v", j)
	}
}
