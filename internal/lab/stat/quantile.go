package stat

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Quantile estimates a quantile q of the distribution that values were drawn
// from, with a two-sided interval at Level from the binomial distribution of
// the number of values below it: no law of the values is assumed, only that
// they are independent. Where the sample is too small for a bound, the bound is
// infinite. Blocks is the number of values.
//
// Infinite values are allowed: what did not happen in time took longer than
// everything that did.
func Quantile(values []float64, q float64) Estimate {
	n := len(values)
	inf := math.Inf(1)
	e := Estimate{Value: math.NaN(), Low: -inf, High: inf, Lower: -inf, Upper: inf, StopLower: -inf, StopUpper: inf, Blocks: n}
	if n == 0 {
		return e
	}
	sorted := slices.Sorted(slices.Values(values))
	e.Value = sorted[min(max(int(math.Ceil(q*float64(n)))-1, 0), n-1)]
	below := distuv.Binomial{N: float64(n), P: q}
	// The k-th smallest value is below the quantile unless fewer than k are.
	lower := func(alpha float64) float64 {
		k := 0
		for k < n && below.CDF(float64(k)) <= alpha {
			k++
		}
		if k == 0 {
			return -inf
		}
		return sorted[k-1]
	}
	// It is above unless k or more values are.
	upper := func(alpha float64) float64 {
		k := n
		for k > 0 && 1-below.CDF(float64(k-1)) <= alpha {
			k--
		}
		if k == n {
			return inf
		}
		return sorted[k]
	}
	e.Low, e.High = lower((1-Level)/2), upper((1-Level)/2)
	e.Lower, e.Upper = lower(1-Level), upper(1-Level)
	e.StopLower, e.StopUpper = lower(1-StopLevel), upper(1-StopLevel)
	return e
}
