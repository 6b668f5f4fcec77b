package stat

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// ShareAbove estimates the share of values above a limit, in blocks of which
// each has several values. The values of a block may depend on each other in
// any way; only the blocks must be independent. Value is the mean over the
// blocks of their shares.
//
// The share is at most the probability that a block has a value above the
// limit. The upper bounds are the exact bounds of that probability (Clopper and
// Pearson 1934), so they hold for every distribution. They are wide: blocks
// without a value above the limit show that a share is below 1 % only if there
// are 299 of them, because a state that 1 % of all blocks have is in none of
// 298 with a probability of 5 %. The lower bounds are those of Mean.
func ShareAbove(values map[int][]float64, limit float64, rule paired.Rule) Estimate {
	shares, concerned := Sample{}, 0
	for block, all := range values {
		above := 0
		for _, v := range all {
			if v > limit {
				above++
			}
		}
		if len(all) > 0 {
			shares[block] = float64(above) / float64(len(all))
		}
		if above > 0 {
			concerned++
		}
	}
	e := Mean(shares, rule)
	upper := func(alpha float64) float64 {
		if concerned == len(shares) {
			return 1
		}
		return distuv.Beta{Alpha: float64(concerned + 1), Beta: float64(len(shares) - concerned)}.Quantile(1 - alpha)
	}
	e.High, e.Upper, e.ClaimUpper = upper((1-Level)/2), upper(1-Level), upper(rule.Spends())
	e.Low, e.Lower, e.ClaimLower = max(e.Low, 0), max(e.Lower, 0), max(e.ClaimLower, 0)
	return e
}

// BlocksWithout returns the number of blocks without a value above the limit
// from which ShareAbove has an upper bound below share. alpha is the error of
// the bound. Both are between 0 and 1.
func BlocksWithout(share, alpha float64) int {
	return int(math.Floor(math.Log(alpha)/math.Log1p(-share))) + 1
}
