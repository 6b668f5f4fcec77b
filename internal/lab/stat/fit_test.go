package stat

import (
	"math"
	"testing"
)

func TestAFitFindsTheParametersOfItsCurve(t *testing.T) {
	x := []float64{0, 1, 2, 3, 5}
	curve := func(p, to []float64) bool {
		for i := range x {
			to[i] = p[0] * math.Exp(-p[1]*x[i])
		}
		return p[1] > 0
	}
	y := make([]float64, len(x))
	curve([]float64{3, 0.7}, y)
	got, ok := Fit(y, curve, []float64{1, 0.1})
	if !ok || math.Abs(got[0]-3) > 1e-6 || math.Abs(got[1]-0.7) > 1e-6 {
		t.Errorf("%v, %v: want 3, 0.7", got, ok)
	}
}

func TestPointsThatDetermineNothingAreRefused(t *testing.T) {
	same := func(p, to []float64) bool { // only the sum of the parameters matters
		for i := range to {
			to[i] = p[0] + p[1]
		}
		return true
	}
	if got, ok := Fit([]float64{1, 2, 3}, same, []float64{0, 0}); ok {
		t.Errorf("two parameters from their sum: %v", got)
	}
	if got, ok := Fit([]float64{1}, same, []float64{0, 0}); ok {
		t.Errorf("two parameters from one point: %v", got)
	}
}
