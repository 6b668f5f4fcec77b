package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestAVariableThatDoesNothingExplainsNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	sum := 0.0
	for range 200 {
		var values, groups []float64
		for range 30 {
			values = append(values, rng.NormFloat64())
			groups = append(groups, float64(rng.IntN(6)))
		}
		e := Explain(values, groups)
		if e.Share < 0 || e.Share > 1 || e.Adjusted > e.Share {
			t.Fatalf("%+v is no share of the variance", e)
		}
		sum += e.Adjusted
	}
	if mean := sum / 200; mean > 0.06 {
		t.Errorf("a variable without effect explains %.0f %% in the mean", 100*mean)
	}
}

func TestAVariableThatDecidesExplainsAll(t *testing.T) {
	e := Explain([]float64{1, 1.01, 5, 5.02, 9, 9.01}, []float64{1, 1, 2, 2, 3, 3})
	if e.Adjusted < 0.999 || e.Groups != 3 {
		t.Errorf("%+v, want nearly all of the variance in 3 groups", e)
	}
	if e := Explain([]float64{1, 2, 3}, []float64{1, 2, 3}); !math.IsNaN(e.Adjusted) {
		t.Errorf("one value a group: adjusted share %v, want NaN", e.Adjusted)
	}
}

func TestFallingFitNeverRisesAndKeepsTheMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	for range 300 {
		n := 1 + rng.IntN(40)
		x, y := make([]float64, n), make([]float64, n)
		sum := 0.0
		for i := range x {
			x[i], y[i] = float64(rng.IntN(12)), 10*rng.Float64()
			sum += y[i]
		}
		slices.Sort(x)
		fit := Falling(x, y)
		count, fitted := 0, 0.0
		for i, l := range fit {
			count += l.Count
			fitted += l.Value * float64(l.Count)
			if i > 0 && (l.Value >= fit[i-1].Value || l.From <= fit[i-1].To) {
				t.Fatalf("x %v, y %v: the fit rises or overlaps: %+v", x, y, fit)
			}
		}
		if count != n || math.Abs(fitted-sum) > 1e-9*max(1, sum) {
			t.Fatalf("the fit has %d values with sum %g, want %d with sum %g", count, fitted, n, sum)
		}
	}
}

func TestCliffIsTheLargestStep(t *testing.T) {
	c, ok := CliffOf(Falling([]float64{1, 1, 2, 3, 4, 4}, []float64{10, 9, 9.4, 4, 3.9, 3.7}))
	if !ok || c.Before != 2 || c.After != 3 || c.High < 9 || c.Low > 4 {
		t.Errorf("%+v, %v: want the step between 2 and 3", c, ok)
	}
	if c, ok := CliffOf(Falling([]float64{1, 2, 3}, []float64{1, 2, 3})); ok {
		t.Errorf("a rising function has the cliff %+v", c)
	}
}
