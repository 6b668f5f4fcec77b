// Package stat turns one number per block into an estimate with its doubt.
// Its unit of evidence is the block, never the request: requests of one run
// share a start of the service, a cache state and a moment of the machine, so
// a million of them say little about the next run. Functions are pure and
// deterministic: the same sample gives the same interval.
package stat

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Sample holds one value per block, keyed by the block's number. A block
// whose run was void is simply absent.
//
// Assumptions: blocks are exchangeable (each holds every mode once, in random
// order), so the values of different blocks are independent draws of one
// distribution. A slow drift of the machine breaks this for a single mode but
// not for a ratio inside a block, which is why comparisons are always paired.
type Sample map[int]float64

const (
	// Level is the confidence of the two-sided interval, and of each of the
	// two one-sided bounds.
	Level = 0.95
	// StopLevel is the confidence that a bound needs to end an experiment
	// early. Looking after every block and stopping at the first 95 % bound
	// that pleases would claim by luck far more often than in one case of
	// twenty (optional stopping); with interim looks at 99.5 % the whole
	// sequence stays near it (Haybittle 1971, Peto 1976; simulated in the tests).
	StopLevel = 0.995
	// MinBlocks is the number of blocks below which an estimate deserves a
	// warning (Few) and never ends an experiment early.
	MinBlocks = 6

	resamples = 10_000
)

// An Estimate is a value with its doubt. With one block the bounds are
// infinite, with none the value is not a number.
type Estimate struct {
	Value     float64
	Low, High float64 // two-sided interval at Level
	// Lower and Upper are the one-sided bounds at Level: the truth lies
	// below Lower in at most one experiment of twenty, and as often above Upper.
	Lower, Upper         float64
	StopLower, StopUpper float64 // one-sided bounds at StopLevel
	Blocks               int     // that the estimate rests on
	Dropped              int     // blocks left out because a value had no meaning
}

// Few reports whether the estimate rests on fewer than MinBlocks blocks: its
// interval then stands on assumptions that so few values cannot check.
func (e Estimate) Few() bool { return e.Blocks < MinBlocks }

// Mean estimates the arithmetic mean over blocks.
func Mean(s Sample) Estimate {
	values := make([]float64, 0, len(s))
	dropped := 0
	for _, block := range slices.Sorted(maps.Keys(s)) {
		if v := s[block]; finite(v) {
			values = append(values, v)
		} else {
			dropped++
		}
	}
	e := estimate(values, resamples)
	e.Dropped = dropped
	return e
}

// Difference estimates the mean of a − b over the blocks that hold both.
func Difference(a, b Sample) Estimate {
	d := make(Sample)
	for block, v := range a {
		if w, ok := b[block]; ok {
			d[block] = v - w
		}
	}
	return Mean(d)
}

// Ratio estimates num / den from the blocks that hold both: the geometric
// mean of the ratios within blocks, exp(mean(log(num/den))).
//
// Why not the ratio of two medians: pairing removes what the two runs of a
// block share, which on a shared host is most of the noise; and a slow phase
// multiplies latencies, so its trace is symmetric in the logarithm. The
// geometric mean also does not care which side is called the baseline:
// Ratio(a, b) is 1 / Ratio(b, a). A median would be deaf to a mode that is
// bad in every fourth block, which is what a tail claim must not hide.
//
// Values that are not positive have no ratio; their blocks are left out and counted in Dropped.
func Ratio(num, den Sample) Estimate { return ratio(num, den, resamples) }

func ratio(num, den Sample, resamples int) Estimate {
	logs := make([]float64, 0, len(num))
	dropped := 0
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
	e := estimate(logs, resamples).mapped(math.Exp)
	e.Dropped = dropped
	return e
}

func (e Estimate) mapped(f func(float64) float64) Estimate {
	for _, p := range []*float64{&e.Value, &e.Low, &e.High, &e.Lower, &e.Upper, &e.StopLower, &e.StopUpper} {
		*p = f(*p)
	}
	return e
}

// estimate gives the mean of values with its bounds. Each bound is the wider
// one of two methods:
//
//   - the percentile bootstrap, which follows the shape of the sample (a skew
//     shows in the interval), but is too narrow for few blocks, by a factor
//     of about sqrt((n-1)/n) and for want of the t distribution's tails: at
//     n = 5 a nominal 95 % covers some 84 %;
//   - Student's t, which is wide for few blocks, but assumes symmetry.
//
// The wider one errs to the side of "undecided". Below MinBlocks no method is
// good: see Few.
func estimate(values []float64, resamples int) Estimate {
	n := len(values)
	inf := math.Inf(1)
	e := Estimate{Value: math.NaN(), Low: -inf, High: inf, Lower: -inf, Upper: inf, StopLower: -inf, StopUpper: inf, Blocks: n}
	if n == 0 {
		return e
	}
	mean, sd := meanSD(values)
	e.Value = mean
	if n == 1 {
		return e
	}
	means := bootstrap(values, resamples)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(n - 1)}
	se := sd / math.Sqrt(float64(n))
	bounds := func(confidence float64) (low, high float64) {
		reach := t.Quantile(confidence) * se
		return min(quantile(means, 1-confidence), mean-reach), max(quantile(means, confidence), mean+reach)
	}
	e.Low, e.High = bounds((1 + Level) / 2)
	e.Lower, e.Upper = bounds(Level)
	e.StopLower, e.StopUpper = bounds(StopLevel)
	return e
}

// bootstrap returns the sorted means of samples drawn with replacement. The
// seed is fixed: an interval must not depend on when it is computed.
func bootstrap(values []float64, resamples int) []float64 {
	rng := rand.New(rand.NewPCG(0x7465, 0x6e6f6e))
	means := make([]float64, resamples)
	n := len(values)
	for i := range means {
		sum := 0.0
		for range n {
			sum += values[rng.IntN(n)]
		}
		means[i] = sum / float64(n)
	}
	slices.Sort(means)
	return means
}

// quantile interpolates linearly between the order statistics of sorted.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-2)
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func meanSD(values []float64) (mean, sd float64) {
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	for _, v := range values {
		sd += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sd / float64(max(len(values)-1, 1)))
}

// Median returns the median of the values of s, or NaN without any.
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
