package stat

import (
	"maps"
	"math"
	"slices"
)

// An Explanation is the part of the variance of values that a variable
// explains.
type Explanation struct {
	Groups int
	// Share is the share of the variance that lies between the groups, R².
	Share float64
	// Adjusted is R², corrected for the number of groups, because many small
	// groups explain much by chance. It is 0 if the variable explains no more
	// than chance does. It is NaN if each group has only one value.
	Adjusted float64
}

// Explain groups the values by a variable, and returns how much of their
// variance the groups explain. groups[i] is the value of the variable for
// values[i].
func Explain(values []float64, groups []float64) Explanation {
	byGroup := map[float64][]float64{}
	for i, v := range values {
		byGroup[groups[i]] = append(byGroup[groups[i]], v)
	}
	n, k := len(values), len(byGroup)
	e := Explanation{Groups: k, Share: math.NaN(), Adjusted: math.NaN()}
	if n < 2 {
		return e
	}
	all, _ := meanSD(values)
	total, within := 0.0, 0.0
	for _, v := range values {
		total += (v - all) * (v - all)
	}
	for _, g := range slices.Sorted(maps.Keys(byGroup)) {
		mean, _ := meanSD(byGroup[g])
		for _, v := range byGroup[g] {
			within += (v - mean) * (v - mean)
		}
	}
	if total == 0 {
		return e
	}
	e.Share = 1 - within/total
	if n > k {
		e.Adjusted = max(0, 1-(within/float64(n-k))/(total/float64(n-1)))
	}
	return e
}
