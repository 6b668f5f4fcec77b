package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// rule is the rule of the experiments of these tests.
var rule = paired.Blocks()

// pairs draws n blocks. Both values of a block have a common factor, the state
// of the machine, and each has noise of its own. num is also multiplied by
// ratio.
func pairs(rng *rand.Rand, n int, ratio, noise float64) (num, den Sample) {
	num, den = make(Sample), make(Sample)
	for block := range n {
		shared := 800 * math.Exp(0.3*rng.NormFloat64())
		num[block] = ratio * shared * math.Exp(noise*rng.NormFloat64())
		den[block] = shared * math.Exp(noise*rng.NormFloat64())
	}
	return num, den
}

func TestIntervalCoversTheTruthAsOftenAsItSays(t *testing.T) {
	const truth, trials = 1.02, 400
	for _, n := range []int{3, 6, 12, 30} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		inside, below, above := 0, 0, 0
		for range trials {
			num, den := pairs(rng, n, truth, 0.05)
			e := Ratio(num, den, paired.Blocks())
			if e.Low <= truth && truth <= e.High {
				inside++
			}
			if e.Upper < truth {
				below++
			}
			if e.Lower > truth {
				above++
			}
		}
		// Allow three standard errors of a proportion in 400 trials: 3.3
		// percentage points.
		if got := float64(inside) / trials; got < Level-0.033 {
			t.Errorf("%d blocks: the interval covers the true value in %.1f %% of %d trials, want %.0f %%", n, 100*got, trials, 100*Level)
		}
		for side, missed := range map[string]int{"upper": below, "lower": above} {
			if got := float64(missed) / trials; got > 1-Level+0.033 {
				t.Errorf("%d blocks: the %s bound misses the true value in %.1f %% of %d trials, want at most 5 %%", n, side, 100*got, trials)
			}
		}
	}
}

// TestIntervalOfASkewedSampleStaysHonest uses a skewed sample, for which
// Student's t alone gives too narrow an interval.
func TestIntervalOfASkewedSampleStaysHonest(t *testing.T) {
	const trials, n = 2000, 20
	rng := rand.New(rand.NewPCG(2, 2))
	inside := 0
	for range trials {
		values := make(Sample)
		for i := range n {
			values[i] = rng.ExpFloat64()
		}
		if e := Mean(values, paired.Blocks()); e.Low <= 1 && 1 <= e.High {
			inside++
		}
	}
	if got := float64(inside) / trials; got < 0.935 {
		t.Errorf("covered in %.1f %% of %d trials of an exponential, want at least 93.5 %%", 100*got, trials)
	}
}

func TestRatioIsPaired(t *testing.T) {
	// The values differ between blocks by a factor of 100, but the ratio within
	// each block is exactly 1.1.
	num, den := Sample{}, Sample{}
	for block, v := range []float64{1, 100, 5, 20, 0.5, 7} {
		num[block], den[block] = 1.1*v, v
	}
	e := Ratio(num, den, rule)
	if math.Abs(e.Value-1.1) > 1e-9 || e.High-e.Low > 1e-9 {
		t.Errorf("Ratio = %v in [%v, %v], want 1.1 and an interval of width 0", e.Value, e.Low, e.High)
	}
}

func TestRatioDoesNotCareWhichSideIsTheBaseline(t *testing.T) {
	num, den := pairs(rand.New(rand.NewPCG(4, 4)), 9, 1.2, 0.1)
	there, back := Ratio(num, den, rule), Ratio(den, num, rule)
	for name, product := range map[string]float64{
		"value": there.Value * back.Value, "low and high": there.Low * back.High, "upper and lower": there.Upper * back.Lower,
	} {
		if math.Abs(product-1) > 0.01 {
			t.Errorf("%s: product of the ratio and its inverse = %v, want 1", name, product)
		}
	}
}

func TestRatioFollowsTheScaleOfItsNumerator(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 20 {
		num, den := pairs(rng, 3+rng.IntN(20), 1, 0.1)
		before := Ratio(num, den, rule)
		for block := range num {
			num[block] *= 1.5
		}
		after := Ratio(num, den, rule)
		for name, pair := range map[string][2]float64{
			"value": {before.Value, after.Value}, "low": {before.Low, after.Low}, "upper": {before.Upper, after.Upper},
		} {
			if math.Abs(pair[1]/pair[0]-1.5) > 1e-9 {
				t.Errorf("%s went from %v to %v, want 1.5 times", name, pair[0], pair[1])
			}
		}
	}
}

func TestBoundsAreNested(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 50 {
		num, den := pairs(rng, 2+rng.IntN(20), 1, 0.2)
		e := Ratio(num, den, rule)
		order := []float64{e.ClaimLower, e.Low, e.Lower, e.Value, e.Upper, e.High, e.ClaimUpper}
		for i := 1; i < len(order); i++ {
			if order[i] < order[i-1] {
				t.Fatalf("bounds %v are not in order (%d blocks)", order, e.Blocks)
			}
		}
	}
}

func TestMoreNoiseWidensAndMoreBlocksNarrowTheInterval(t *testing.T) {
	width := func(n int, noise float64) float64 {
		num, den := pairs(rand.New(rand.NewPCG(7, 7)), n, 1, noise)
		e := Ratio(num, den, rule)
		return e.High - e.Low
	}
	if quiet, loud := width(10, 0.02), width(10, 0.2); quiet >= loud {
		t.Errorf("width %v with little noise, %v with much", quiet, loud)
	}
	if few, many := width(6, 0.05), width(60, 0.05); many >= few {
		t.Errorf("width %v with 6 blocks, %v with 60", few, many)
	}
}

func TestBlocksWithoutAPairAreLeftOut(t *testing.T) {
	num, den := pairs(rand.New(rand.NewPCG(8, 8)), 8, 1.1, 0.05)
	want := Ratio(num, den, rule)
	num[100], den[101] = 1e9, 1e-9 // the other run of the block was void
	if diff := cmp.Diff(want, Ratio(num, den, rule)); diff != "" {
		t.Errorf("a block without a pair changed the ratio (-want +got):\n%s", diff)
	}
}

func TestValuesWithoutALogarithmAreLeftOutAloud(t *testing.T) {
	for name, bad := range map[string]float64{"zero": 0, "negative": -1, "not a number": math.NaN(), "infinite": math.Inf(1)} {
		num, den := pairs(rand.New(rand.NewPCG(9, 9)), 8, 1.1, 0.05)
		num[3] = bad
		e := Ratio(num, den, rule)
		if e.Blocks != 7 || e.Dropped != 1 || !finite(e.Value) {
			t.Errorf("%s: %d blocks, %d dropped, value %v; want 7 blocks and one dropped", name, e.Blocks, e.Dropped, e.Value)
		}
	}
}

func TestTooFewBlocksGiveNoFalseComfort(t *testing.T) {
	none := Ratio(Sample{}, Sample{}, rule)
	if !math.IsNaN(none.Value) || AtMost(none, 2) != Undecided {
		t.Errorf("no block: %+v", none)
	}
	one := Ratio(Sample{1: 2}, Sample{1: 1}, rule)
	if one.Value != 2 || !math.IsInf(one.High, 1) || one.Low != 0 || AtMost(one, 100) != Undecided {
		t.Errorf("one block: %+v", one)
	}
	two := Ratio(Sample{1: 1.00, 2: 1.01}, Sample{1: 1, 2: 1}, rule)
	if two.Enough || two.High < 1.06 {
		t.Errorf("two blocks 1 %% apart: %+v, want not enough, and an interval beyond 1.06", two)
	}
}

func TestSameSampleGivesTheSameInterval(t *testing.T) {
	num, den := pairs(rand.New(rand.NewPCG(10, 10)), 15, 1.1, 0.1)
	if diff := cmp.Diff(Ratio(num, den, rule), Ratio(num, den, rule)); diff != "" {
		t.Error(diff)
	}
}

func TestMeanAndDifference(t *testing.T) {
	a := Sample{1: 10, 2: 12, 3: 14, 4: 11, 5: 13, 6: 12}
	b := Sample{1: 9, 2: 11, 3: 13, 4: 10, 5: 12, 6: 11}
	near := cmpopts.EquateApprox(0, 1e-9)
	if got := Mean(a, rule).Value; !cmp.Equal(got, 12.0, near) {
		t.Errorf("Mean = %v, want 12", got)
	}
	if got := Difference(a, b, rule); !cmp.Equal(got.Value, 1.0, near) || !cmp.Equal(got.High, 1.0, near) {
		t.Errorf("Difference = %v up to %v, want 1 up to 1", got.Value, got.High)
	}
	if got := Median(Sample{1: 4, 2: 1, 3: 3, 4: 2}); got != 2.5 {
		t.Errorf("Median = %v, want 2.5", got)
	}
}

func FuzzRatio(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 4.0)
	f.Add(0.0, -1.0, math.Inf(1), math.NaN())
	f.Add(1e-308, 1e308, 1e308, 1e-308)
	f.Fuzz(func(t *testing.T, a, b, c, d float64) {
		e := Ratio(Sample{1: a, 2: b, 3: c}, Sample{1: b, 2: c, 3: d}, rule)
		if e.Blocks > 0 && (math.IsNaN(e.Value) || math.IsNaN(e.Low) || e.Low > e.High) {
			t.Errorf("Ratio of %v %v %v %v = %+v", a, b, c, d, e)
		}
	})
}
