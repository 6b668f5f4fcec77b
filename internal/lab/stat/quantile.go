package stat

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Quantile estimates the quantile q of the distribution of values, with a
// two-sided interval at Level. The interval comes from the binomial
// distribution of the number of values below the quantile. It assumes that the
// values are independent, and nothing else about their distribution. If the
// sample is too small for a bound, the bound is infinite. Blocks is the number
// of values.
//
// It decides no claim, because the values of one block are not independent. If
// several values come from one block, the bounds may be too narrow. ShareAbove
// has bounds for a claim.
//
// Infinite values are allowed. They stand for events that did not happen in
// time.
func Quantile(values []float64, q float64) Estimate {
	n := len(values)
	inf := math.Inf(1)
	e := Estimate{
		Value: math.NaN(), Low: -inf, High: inf, Lower: -inf, Upper: inf,
		Median: math.NaN(), MedianLow: -inf, MedianHigh: inf, ClaimLower: -inf, ClaimUpper: inf, Blocks: n,
	}
	if n == 0 {
		return e
	}
	sorted := slices.Sorted(slices.Values(values))
	e.Value = sorted[min(max(int(math.Ceil(q*float64(n)))-1, 0), n-1)]
	below := distuv.Binomial{N: float64(n), P: q}
	// The k-th smallest value is below the quantile if and only if at least k
	// values are below it.
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
	// The k-th smallest value is above the quantile if and only if fewer than k
	// values are below it.
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
	return e
}
