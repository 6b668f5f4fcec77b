// Package paired judges ratios that were measured in pairs. Each pair measures
// two ways to do the same, one after the other in random order. The package
// says which claims the pairs support, and after how many pairs to judge. The
// lab uses it for its blocks, and the agent for its trials on the user's
// services.
package paired

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Rule says when the pairs are judged, and what they must show. It is fixed
// before the measurement begins. The zero Rule allows no claim.
type Rule struct {
	// Looks are the numbers of pairs at which the sample is judged, ascending.
	// There must be few of them: a rule that judges after every pair makes a
	// false claim sooner or later.
	Looks []int
	// Alpha is the probability of a wrong one-sided claim in all looks
	// together, such as 0.05. Each look spends the same part of Alpha
	// (Bonferroni). This is correct even if the looks depend on each other.
	Alpha float64
	// Least is the minimum number of pairs for a claim. LeastSkewed is the
	// minimum if the skewness is beyond ±SkewLimit, because the t distribution
	// is then too narrow.
	Least, LeastSkewed int
	// Rare is the size, as a log ratio, of a bad state that is so rare that the
	// pairs may have missed it. For such a state, Allowance widens the bounds
	// of the mean. If Rare is 0, there is no allowance.
	Rare float64
}

// SkewLimit is the skewness beyond which a sample counts as skewed.
const SkewLimit = 1

// Blocks returns the rule of the lab for experiments that end as soon as every
// claim is decided.
func Blocks() Rule {
	return Rule{Looks: []int{12, 24, 48, 96}, Alpha: 0.05, Least: 12, LeastSkewed: 20, Rare: 2}
}

// Planned returns the same rule for a number of pairs that was fixed before the
// measurement. This rule looks only once, after the last pair.
func (r Rule) Planned(pairs int) Rule {
	r.Looks = []int{pairs}
	return r
}

// IsLook reports whether the rule judges a sample of n pairs.
func (r Rule) IsLook(n int) bool { return slices.Contains(r.Looks, n) }

// Last returns the largest number of pairs at which the rule looks, or 0 if the
// rule has no looks.
func (r Rule) Last() int {
	if len(r.Looks) == 0 {
		return 0
	}
	return slices.Max(r.Looks)
}

// Spends returns the part of Alpha that one look spends.
func (r Rule) Spends() float64 { return r.Alpha / float64(max(len(r.Looks), 1)) }

// Allowance returns the largest error of the mean of the logs that is possible
// because n pairs missed a rare bad state of size Rare. If a state occurs in a
// share p of all pairs, n pairs miss it with probability (1 − p)^n. The largest
// share that is missed with probability 5 % is therefore 1 − 0.05^(1/n): 22 %
// for n = 12. Thirty pairs probably contain a state that occurs in one pair of
// ten, so from 30 pairs on there is no allowance.
func (r Rule) Allowance(n int) float64 {
	const shown = 30
	if n >= shown || n <= 0 {
		return 0
	}
	return r.Rare * (1 - math.Pow(0.05, 1/float64(n)))
}

// Judge returns the result of one look at a sample of log ratios. The values
// must be finite.
func (r Rule) Judge(logs []float64) Judgement {
	j := Judgement{rule: r, Bounds: BoundsOf(logs, r.Spends())}
	j.Enough = j.Pairs >= r.Least && (math.Abs(j.Skew) <= SkewLimit || j.Pairs >= r.LeastSkewed)
	return j
}

// A Judgement is the result of one look at a sample of log ratios.
type Judgement struct {
	Bounds
	// Enough says that the rule allows a claim from this many pairs with this
	// skewness.
	Enough bool
	rule   Rule
}

// UpperBound returns the upper bound of a claim, as a log ratio. This is the
// larger of two bounds: the bound of the mean plus the allowance for rare bad
// states, and the bound of the median.
func (j Judgement) UpperBound() float64 {
	return max(j.MeanUpper+j.rule.Allowance(j.Pairs), j.MedianUpper)
}

// Lower returns the lower bound of a claim. It mirrors UpperBound.
func (j Judgement) Lower() float64 {
	return min(j.MeanLower-j.rule.Allowance(j.Pairs), j.MedianLower)
}

// ShowsBelow reports whether the sample shows that the ratio is below a limit,
// such as 1.03.
func (j Judgement) ShowsBelow(limit float64) bool {
	return j.Enough && j.UpperBound() < math.Log(limit)
}

// ShowsAbove reports whether the sample shows that the ratio is above a limit.
func (j Judgement) ShowsAbove(limit float64) bool { return j.Enough && j.Lower() > math.Log(limit) }

// Bounds are the mean and the median of a sample of log ratios, with one-sided
// bounds. If the sample is too small for a bound, the bound is infinite.
type Bounds struct {
	Pairs int
	// Mean is the arithmetic mean of the logs, so that exp(Mean) is the
	// geometric mean of the ratios. Each of its bounds is the wider one of two:
	// the bound of Student's t, which assumes symmetry, and the bound of Hall
	// (1992), who transforms t to remove the skewness.
	Mean, MeanLower, MeanUpper float64
	// Median has the exact bounds of the order statistics (the sign test). They
	// hold for every distribution if the pairs are independent.
	Median, MedianLower, MedianUpper float64
	// Skew is the skewness of the sample (the third standardised moment).
	Skew float64
}

// BoundsOf returns the mean and the median with their bounds. Each bound is
// wrong with probability alpha. The values must be finite. If there are none,
// Mean and Median are NaN.
func BoundsOf(logs []float64, alpha float64) Bounds {
	n, inf := len(logs), math.Inf(1)
	b := Bounds{Pairs: n, Mean: math.NaN(), MeanLower: -inf, MeanUpper: inf, Median: math.NaN(), MedianLower: -inf, MedianUpper: inf}
	if n == 0 {
		return b
	}
	sorted := slices.Sorted(slices.Values(logs))
	b.Median = (sorted[(n-1)/2] + sorted[n/2]) / 2
	if k := medianRank(n, alpha); k > 0 {
		b.MedianLower, b.MedianUpper = sorted[k-1], sorted[n-k]
	}
	var sd float64
	b.Mean, sd, b.Skew = moments(logs)
	if n > 1 && alpha > 0 {
		se, t := sd/math.Sqrt(float64(n)), student(n).Quantile(1-alpha)
		b.MeanLower = b.Mean - se*max(t, unskewedInverse(n, b.Skew, t))
		b.MeanUpper = b.Mean - se*min(-t, unskewedInverse(n, b.Skew, -t))
	}
	return b
}

// medianRank returns the largest k for which the k-th smallest of n values is
// above the median of their distribution with probability at most alpha. It
// returns 0 if there is no such k.
func medianRank(n int, alpha float64) int {
	// The k-th smallest value is above the median if fewer than k values are
	// below the median. The number of values below the median is binomial with
	// probability 1/2.
	log, sum := -float64(n)*math.Ln2, 0.0
	for k := range n {
		if sum += math.Exp(log); sum > alpha {
			return k
		}
		log += math.Log(float64(n-k) / float64(k+1))
	}
	return n
}

// student returns the t distribution for the mean of n values.
func student(n int) distuv.StudentsT {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(n - 1)}
}

// unskew transforms the t statistic of a sample of n values, so that the
// skewness of the values has no effect on it (Hall 1992, "On the removal of
// skewness by transformation"). It is monotone in t.
func unskew(n int, skew, t float64) float64 {
	g := skew / math.Sqrt(float64(n))
	return t + g*t*t/3 + g*g*t*t*t/27 + g/6
}

// unskewedInverse returns the t whose transformed value (unskew) is x.
func unskewedInverse(n int, skew, x float64) float64 {
	g := skew / math.Sqrt(float64(n))
	if math.Abs(g) < 1e-6 {
		return x
	}
	return 3 / g * (math.Cbrt(1+g*(x-g/6)) - 1)
}

// moments returns the mean, the standard deviation and the skewness of a
// sample.
func moments(values []float64) (mean, sd, skew float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v
	}
	mean /= n
	var second, third float64
	for _, v := range values {
		d := v - mean
		second += d * d
		third += d * d * d
	}
	if second > 0 {
		skew = third / n / math.Pow(second/n, 1.5)
	}
	return mean, math.Sqrt(second / max(n-1, 1)), skew
}

// P returns the two-sided p value of the claim that the ratio differs from
// limit. If the ratio equals limit, a sample so far from limit has at most this
// probability. P is the larger p value of two tests: the test of the mean,
// after the allowance, and the test of the median. If the rule allows no claim
// from the sample, P is 1.
func (r Rule) P(logs []float64, limit float64) float64 {
	j := r.Judge(logs)
	l := math.Log(limit)
	distance := math.Abs(j.Mean-l) - r.Allowance(j.Pairs)
	if !j.Enough || !(distance > 0) || (j.Mean > l) != (j.Median > l) {
		return 1
	}
	_, sd, _ := moments(logs)
	mean := 0.0
	if sd > 0 {
		t, skew := distance/sd*math.Sqrt(float64(j.Pairs)), j.Skew
		if j.Mean < l {
			skew = -skew // the same test on the other side
		}
		mean = 2 * student(j.Pairs).Survival(min(t, unskew(j.Pairs, skew, t)))
	}
	beyond := 0 // values at the limit count against a difference on either side
	for _, v := range logs {
		if j.Mean > l && v > l || j.Mean < l && v < l {
			beyond++
		}
	}
	median := 2 * distuv.Binomial{N: float64(j.Pairs), P: 0.5}.CDF(float64(j.Pairs-beyond))
	return min(max(mean, median), 1)
}

// Holm returns which of m claims hold together (Holm 1979). Each claim has one
// of the p values. The probability that any of them is wrong is at most alpha.
// The claim with the smallest p must hold at alpha / m, the next one at alpha /
// (m−1), and so on. The first claim that does not hold is rejected, together
// with all claims after it. If a p is not a number, it counts as 1.
func Holm(p []float64, alpha float64) []bool {
	p = slices.Clone(p)
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
		if math.IsNaN(p[i]) {
			p[i] = 1
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	hold := make([]bool, len(p))
	for i, at := range order {
		if p[at] > alpha/float64(len(p)-i) {
			break
		}
		hold[at] = true
	}
	return hold
}

// Reach returns the distance of a bound of the mean of n values that is wrong with
// probability alpha, in standard errors (Student's t).
func Reach(n int, alpha float64) float64 {
	if n < 2 {
		return math.Inf(1)
	}
	return student(n).Quantile(1 - alpha)
}
