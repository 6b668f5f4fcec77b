package stat

import "math"

// Fisher returns the two-sided p value of Fisher's exact test: a of n and b of m
// trials have a property. If the property is as probable in both groups, shares
// that differ at least as much have at most this probability. It is 1 if a group
// has no trial.
func Fisher(a, n, b, m int) float64 {
	choose := func(n, k int) float64 { // logarithm of the binomial coefficient
		all, _ := math.Lgamma(float64(n + 1))
		in, _ := math.Lgamma(float64(k + 1))
		out, _ := math.Lgamma(float64(n - k + 1))
		return all - in - out
	}
	with := a + b
	// at is the probability of k trials with the property in the first group,
	// if the numbers of trials and of those with the property are given.
	at := func(k int) float64 { return math.Exp(choose(n, k) + choose(m, with-k) - choose(n+m, with)) }
	p := 0.0
	for k := max(0, with-m); k <= min(n, with); k++ {
		if q := at(k); q <= at(a)*(1+1e-9) {
			p += q
		}
	}
	return min(p, 1)
}
