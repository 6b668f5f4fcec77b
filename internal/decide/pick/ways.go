package pick

import (
	"math/bits"

	"tenon.sh/tenon/internal/model/unit"
)

// Ways are the ways of an L3 cache to choose from.
type Ways struct {
	// Mask has a bit for each way that there is.
	Mask uint64
	// Least is the least number that a group may have; 0 counts as 1.
	Least int
	// Sparse: the chosen ways need not be next to each other.
	Sparse bool
}

// Part chooses the ways from start to end percent of the cache. Where the
// percentages do not fall between two ways, a part that must be kept small is
// rounded down, and otherwise up; it never is less than the least. It is 0 only
// if there are no ways.
func (w Ways) Part(start, end unit.Percent, small bool) uint64 {
	all := w.usable()
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

// usable lists the ways from the lowest: all, or the longest row of neighbours
// where a group must have neighbours.
func (w Ways) usable() []int {
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
