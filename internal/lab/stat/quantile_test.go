package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestQuantileIntervalCoversTheTruthAsOftenAsItSays(t *testing.T) {
	const trials = 1000
	for _, q := range []float64{0.5, 0.9, 0.99} {
		rng := rand.New(rand.NewPCG(5, uint64(1000*q)))
		inside, above := 0, 0
		for range trials {
			values := make([]float64, 300)
			for i := range values {
				values[i] = rng.ExpFloat64()
			}
			truth := -math.Log(1 - q)
			e := Quantile(values, q)
			if e.Low <= truth && truth <= e.High {
				inside++
			}
			if e.Upper < truth {
				above++
			}
		}
		// Allow three standard errors of a proportion in 1000 trials: 2.1
		// percentage points.
		if got := float64(inside) / trials; got < Level-0.021 {
			t.Errorf("q %v: covered in %.1f %%", q, 100*got)
		}
		if got := float64(above) / trials; got > 1-Level+0.021 {
			t.Errorf("q %v: the upper bound misses the true value in %.1f %%", q, 100*got)
		}
	}
}

func TestQuantileOfTooFewValuesHasNoUpperBound(t *testing.T) {
	values := make([]float64, 80)
	for i := range values {
		values[i] = float64(i + 1)
	}
	e := Quantile(values, 0.99)
	if e.Value != 80 || !math.IsInf(e.High, 1) || e.Low > 80 || e.Low < 70 {
		t.Errorf("%+v", e)
	}
	if e := Quantile(nil, 0.5); !math.IsNaN(e.Value) || e.Blocks != 0 {
		t.Errorf("of nothing: %+v", e)
	}
}

func TestWhatNeverHappenedIsLongerThanAllThatDid(t *testing.T) {
	e := Quantile([]float64{1, 2, 3, math.Inf(1), math.Inf(1)}, 0.5)
	if e.Value != 3 {
		t.Errorf("median %v, want 3", e.Value)
	}
	if e := Quantile([]float64{1, math.Inf(1), math.Inf(1)}, 0.5); !math.IsInf(e.Value, 1) {
		t.Errorf("median %v, want infinity", e.Value)
	}
}
