// Package knapsack solves small problems of integer packing: which items add up
// to a number, or have the most value.
package knapsack

import "slices"

// Choices returns the number of ways to choose k of n things. It stops counting
// above most.
func Choices(n, k, most int) int {
	all := 1
	for i := range min(k, n-k) {
		all = all * (n - i) / (i + 1)
		if all > most {
			break
		}
	}
	return all
}

// An Item has a weight and a value. Neither is negative.
type Item struct{ Weight, Value int32 }

// A state is the best set of items for one number of items and one weight.
type state struct {
	value int32 // -1: there is no such set
	last  int32 // index of the last item, plus one
	from  int32 // index of the state without the last item
}

// EachBest finds sets of k items by dynamic programming. For each total weight
// from least up, it calls try with the indexes of the items in the set with the
// most value. A set can be so heavy that it reaches least without any one of
// its items. Of all such sets, only the best is tried.
func EachBest(items []Item, k int, least int32, try func([]int32)) {
	most := int32(0)
	for _, item := range items {
		most = max(most, item.Weight)
	}
	width := least + most + 1
	// layers[i][c*width+w] is the best set of weight w. It has c items, all
	// among the first i. The largest w also stands for all larger weights.
	layers := [][]state{make([]state, int32(k+1)*width)}
	for i := range layers[0] {
		layers[0][i] = state{value: -1}
	}
	layers[0][0].value = 0
	for at, item := range items {
		before := layers[at]
		next := slices.Clone(before)
		for c := min(at+1, k); c > 0; c-- {
			for w := range width {
				from := int32(c-1)*width + w
				if before[from].value < 0 {
					continue
				}
				to := int32(c)*width + min(w+item.Weight, width-1)
				if v := before[from].value + item.Value; v > next[to].value {
					next[to] = state{v, int32(at) + 1, from}
				}
			}
		}
		layers = append(layers, next)
	}
	for w := least; w < width; w++ {
		at, layer := int32(k)*width+w, len(items)
		if layers[layer][at].value < 0 {
			continue
		}
		set := make([]int32, 0, k)
		for layer > 0 && at >= width {
			st := layers[layer][at]
			layer = int(st.last) - 1
			set = append(set, int32(layer))
			at = st.from
		}
		try(set)
	}
}

// Counts chooses how many items of each size to take. The sum of their sizes is
// as large as possible, but at most n. The argument sizes is in descending
// order, and count holds the number of items of each size.
func Counts(sizes, count []int32, n int32) []int32 {
	best := make([]int32, len(sizes))
	sum := int32(0)
	exact := true // if the sizes divide each other, taking the largest first is exact
	for i, size := range sizes {
		best[i] = min(count[i], (n-sum)/size)
		sum += size * best[i]
		exact = exact && (i == 0 || sizes[i-1]%size == 0)
	}
	if exact || sum == n {
		return best
	}
	now := make([]int32, len(sizes))
	var try func(i int, left int32)
	try = func(i int, left int32) {
		if sum == n {
			return
		}
		if i == len(sizes) {
			if n-left > sum {
				sum = n - left
				copy(best, now)
			}
			return
		}
		for k := min(count[i], left/sizes[i]); k >= 0; k-- {
			now[i] = k
			try(i+1, left-k*sizes[i])
		}
	}
	try(0, n)
	return best
}
