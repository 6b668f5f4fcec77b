package cache

import (
	"math/bits"

	"tenon.sh/tenon/internal/model/unit"
)

// ways describes the ways of an L3 cache. The method part chooses some of them.
type ways struct {
	// Mask has one bit for each existing way.
	Mask uint64
	// Least is the minimum number of ways of a group; 0 counts as 1.
	Least int
	// Sparse says that the chosen ways need not be contiguous.
	Sparse bool
}

// part returns a bit mask of the ways from start to end percent of the cache.
// If the argument small is set, it rounds to fewer ways, and otherwise to more.
// The mask has at least Least ways. It is 0 only if the cache has no ways.
func (w ways) part(start, end unit.Percent, small bool) uint64 {
	all := w.usableWays()
	n := len(all)
	if n == 0 {
		return 0
	}
	start = min(max(start, 0), 100)
	end = min(max(end, start), 100)
	first, size := n*int(start)/100, n*int(end-start)/100
	if small {
		first = (n*int(start) + 99) / 100
	} else {
		size = (n*int(end)+99)/100 - first
	}
	size = min(max(size, w.Least, 1), n)
	first = min(first, n-size)
	var mask uint64
	for _, way := range all[first : first+size] {
		mask |= 1 << way
	}
	return mask
}

// usableWays lists the ways that a group may use, in ascending order. If Sparse
// is set, these are all ways. Otherwise they are the longest contiguous run.
func (w ways) usableWays() []int {
	var all, row, best []int
	for mask := w.Mask; mask != 0; mask &= mask - 1 {
		way := bits.TrailingZeros64(mask)
		all = append(all, way)
		if len(row) > 0 && row[len(row)-1] != way-1 {
			row = nil
		}
		if row = append(row, way); len(row) > len(best) {
			best = row
		}
	}
	if w.Sparse {
		return all
	}
	return best
}
