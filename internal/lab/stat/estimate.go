// Package stat turns one number per block into an estimate with a confidence
// interval. Its unit of evidence is the block and not the request. All requests
// of one run share a start of the service, a cache state and a state of the
// machine. Even a million of them therefore say little about the next run. All
// functions are pure and deterministic: the same sample gives the same
// interval.
package stat

import (
	"maps"
	"math"
	"slices"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// A Sample holds one value per block, keyed by the block's number. It has no
// value for a block whose run was void.
//
// The assumption is that blocks are exchangeable. Each contains every mode
// once, in random order, so the values of different blocks are independent
// draws from one distribution. A slow drift of the machine violates this for a
// single mode, but not for a ratio within a block. Therefore comparisons are
// always paired.
type Sample map[int]float64

// Level is the confidence of the two-sided interval that is printed. It is also
// the confidence of each one-sided bound.
const Level = 0.95

// An Estimate is a value with its confidence bounds. If there is only one
// block, the bounds are infinite. If there is no block, the value is NaN.
type Estimate struct {
	Value     float64 // mean over blocks
	Low, High float64 // two-sided interval at Level
	// Lower and Upper are the one-sided bounds at Level. The true value is
	// below Lower in at most one of twenty experiments, and above Upper in at
	// most one of twenty.
	Lower, Upper float64
	// Median is the median over blocks. MedianLow and MedianHigh are its exact
	// two-sided interval at Level, which holds for every distribution.
	Median, MedianLow, MedianHigh float64
	// ClaimLower and ClaimUpper are the bounds that decide claims at one look
	// of the experiment's rule. Each is the wider one of two bounds: that of
	// the mean, and that of the median. Enough is true if there are enough
	// blocks for a claim.
	ClaimLower, ClaimUpper float64
	Enough                 bool
	Blocks                 int // number of blocks used
	Dropped                int // number of blocks left out because a value was not usable
}

// Mean estimates the arithmetic mean over blocks. It is for values with a fixed
// range, such as CPU use in percent. A rare bad state of the machine cannot
// change such a value by a large factor, so Mean does not use rule.Rare.
func Mean(s Sample, rule paired.Rule) Estimate {
	values := make([]float64, 0, len(s))
	dropped := 0
	for _, block := range slices.Sorted(maps.Keys(s)) {
		if v := s[block]; finite(v) {
			values = append(values, v)
		} else {
			dropped++
		}
	}
	rule.Rare = 0
	e := estimate(values, rule)
	e.Dropped = dropped
	return e
}

// Describe estimates the mean over blocks for a reader. It decides no claim.
func Describe(s Sample) Estimate { return Mean(s, paired.Rule{}) }

// Difference estimates the mean of a − b over the blocks that both samples
// contain.
func Difference(a, b Sample, rule paired.Rule) Estimate {
	d := make(Sample)
	for block, v := range a {
		if w, ok := b[block]; ok {
			d[block] = v - w
		}
	}
	return Mean(d, rule)
}

// Ratio estimates num / den from the blocks that both samples contain. It is
// the geometric mean of the ratios within blocks, exp(mean(log(num/den))).
//
// It is not the ratio of two medians, for these reasons. Pairing removes the
// common state of the machine, which causes most of the noise on a shared host.
// A slow phase multiplies latencies, so its effect is symmetric in the
// logarithm. The geometric mean does not depend on the choice of the baseline:
// Ratio(a, b) is 1 / Ratio(b, a).
//
// A median alone would ignore a mode that is bad in every fourth block, and a
// claim about the tail must not hide that. A mean alone depends on a few
// blocks. Therefore a claim must hold for both.
//
// Blocks with a value that is not positive are left out, and Dropped counts
// them.
func Ratio(num, den Sample, rule paired.Rule) Estimate {
	logs, dropped := Logs(num, den)
	e := estimate(logs, rule).mapped(math.Exp)
	e.Dropped = dropped
	return e
}

// Logs returns the logarithms of the ratios within blocks, in the order of the
// blocks. dropped is the number of blocks without a finite logarithm.
func Logs(num, den Sample) (logs []float64, dropped int) {
	logs = make([]float64, 0, len(num))
	for _, block := range slices.Sorted(maps.Keys(num)) {
		d, ok := den[block]
		if !ok {
			continue
		}
		if l := math.Log(num[block] / d); finite(l) && num[block] > 0 {
			logs = append(logs, l)
		} else {
			dropped++
		}
	}
	return logs, dropped
}

func (e Estimate) mapped(f func(float64) float64) Estimate {
	for _, p := range []*float64{&e.Value, &e.Low, &e.High, &e.Lower, &e.Upper, &e.Median, &e.MedianLow, &e.MedianHigh, &e.ClaimLower, &e.ClaimUpper} {
		*p = f(*p)
	}
	return e
}

func estimate(values []float64, rule paired.Rule) Estimate {
	both, one, claim := paired.BoundsOf(values, (1-Level)/2), paired.BoundsOf(values, 1-Level), rule.Judge(values)
	return Estimate{
		Value: both.Mean, Low: both.MeanLower, High: both.MeanUpper, Lower: one.MeanLower, Upper: one.MeanUpper,
		Median: both.Median, MedianLow: both.MedianLower, MedianHigh: both.MedianUpper,
		ClaimLower: claim.Lower(), ClaimUpper: claim.UpperBound(), Enough: claim.Enough, Blocks: both.Pairs,
	}
}

// Median returns the median of the values of s, or NaN if s is empty.
func Median(s Sample) float64 {
	values := slices.Sorted(maps.Values(s))
	switch n := len(values); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return values[n/2]
	default:
		return (values[n/2-1] + values[n/2]) / 2
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
