package stat

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// A Curve is a function with parameters. It computes its values at the points
// of a fit, and writes them to the given slice. It reports whether the
// parameters are in its domain.
type Curve func(parameters, values []float64) bool

const (
	fitSteps   = 50   // largest number of Gauss-Newton steps
	fitHalves  = 30   // largest number of halvings of a step that leads out of the domain or uphill
	fitEnough  = 1e-9 // change of a parameter at which a fit ends
	derivative = 1e-6 // difference of a parameter for a derivative
)

// Fit returns the parameters with which a curve is closest to y, by least
// squares. It uses the steps of Gauss and Newton, and halves a step that does
// not lower the sum of squares. It begins at start, which must be in the
// domain. ok is false if the points do not determine the parameters.
func Fit(y []float64, f Curve, start []float64) (parameters []float64, ok bool) {
	n, k := len(y), len(start)
	at := append([]float64(nil), start...)
	value, moved := make([]float64, n), make([]float64, n)
	if n < k || k == 0 || !f(at, value) {
		return nil, false
	}
	slope, left := mat.NewDense(n, k, nil), mat.NewVecDense(n, nil)
	for range fitSteps {
		sum := 0.0
		for i := range y {
			left.SetVec(i, y[i]-value[i])
			sum += left.AtVec(i) * left.AtVec(i)
		}
		for j := range at {
			was := at[j]
			at[j] += derivative
			if !f(at, moved) {
				return nil, false
			}
			at[j] = was
			for i := range y {
				slope.Set(i, j, (moved[i]-value[i])/derivative)
			}
		}
		var step mat.VecDense
		if err := step.SolveVec(slope, left); err != nil {
			return nil, false
		}
		next, change := make([]float64, k), 0.0
		better := false
		for scale, halves := 1.0, 0; halves < fitHalves && !better; scale, halves = scale/2, halves+1 {
			change = 0
			for j := range at {
				next[j] = at[j] + scale*step.AtVec(j)
				change = max(change, math.Abs(next[j]-at[j]))
			}
			better = f(next, moved) && squares(y, moved) <= sum
		}
		if !better {
			return at, true
		}
		copy(at, next)
		copy(value, moved)
		if change < fitEnough {
			return at, true
		}
	}
	return at, true
}

func squares(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += (a[i] - b[i]) * (a[i] - b[i])
	}
	return sum
}
