// Package stat turns one number per block into an estimate with a confidence
// interval. Its unit of evidence is the block and not the request: the requests
// of one run share a start of the service, a cache state and a state of the
// machine, so that even a million of them say little about the next run.
// Functions are pure and deterministic: the same sample gives the same
// interval.
package stat

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Sample holds one value per block, keyed by the block's number. It has no
// value for a block whose run was void.
//
// Assumption: blocks are exchangeable (each contains every mode once, in random
// order), so the values of different blocks are independent draws from one
// distribution. A slow drift of the machine violates this for a single mode but
// not for a ratio within a block, so comparisons are always paired.
type Sample map[int]float64

const (
	// Level is the confidence of the two-sided interval, and of each of the
	// two one-sided bounds.
	Level = 0.95
	// StopLevel is the confidence that a bound needs to end an experiment
	// early. Looking after every block and stopping at the first favourable 95
	// % bound would make false claims in far more than one of twenty
	// experiments (optional stopping). With interim looks at 99.5 % the error
	// rate of the whole sequence stays near 5 % (Haybittle 1971, Peto 1976;
	// simulated in the tests).
	StopLevel = 0.995
	// MinBlocks is the number of blocks below which an estimate gets a warning
	// (Few) and never ends an experiment early.
	MinBlocks = 6

	resamples = 10_000
)

// An Estimate is a value with its confidence bounds. With one block the bounds
// are infinite. Without a block the value is NaN.
type Estimate struct {
	Value     float64
	Low, High float64 // two-sided interval at Level
	// Lower and Upper are the one-sided bounds at Level. The true value is
	// below Lower in at most one of twenty experiments, and above Upper in at
	// most one of twenty.
	Lower, Upper         float64
	StopLower, StopUpper float64 // one-sided bounds at StopLevel
	Blocks               int     // number of blocks used
	Dropped              int     // number of blocks left out because a value was not usable
}

// Few reports whether the estimate uses fewer than MinBlocks blocks. Its
// interval then depends on assumptions that so few values cannot verify.
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

// Difference estimates the mean of a − b over the blocks that contain both.
func Difference(a, b Sample) Estimate {
	d := make(Sample)
	for block, v := range a {
		if w, ok := b[block]; ok {
			d[block] = v - w
		}
	}
	return Mean(d)
}

// Ratio estimates num / den from the blocks that contain both. It is the
// geometric mean of the ratios within blocks, exp(mean(log(num/den))).
//
// It is not the ratio of two medians for these reasons. Pairing removes the
// common state of the machine, which causes most of the noise on a shared host.
// A slow phase multiplies latencies, so its effect is symmetric in the
// logarithm. The geometric mean does not depend on the choice of the baseline:
// Ratio(a, b) is 1 / Ratio(b, a). A median would ignore a mode that is bad in
// every fourth block, which a claim about the tail must not hide.
//
// Blocks with a value that is not positive are left out and counted in Dropped.
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

// estimate returns the mean of values with its bounds. Each bound is the wider
// one of two methods:
//
//   - the percentile bootstrap, which follows the shape of the sample (a skew
//     shows in the interval), but is too narrow for few blocks, by a factor
//     of about sqrt((n-1)/n) and for want of the t distribution's tails: at
//     n = 5 a nominal 95 % covers some 84 %;
//   - Student's t, which is wide for few blocks, but assumes symmetry.
//
// The wider bound favours "undecided". Below MinBlocks no method is good; see
// Few.
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
// seed is constant, so that the same values give the same interval.
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

// quantile interpolates linearly between the values of sorted.
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
