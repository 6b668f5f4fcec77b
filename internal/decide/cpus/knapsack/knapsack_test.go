package knapsack

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// TestTheBestSetIsAmongThoseTried compares EachBest with all sets of k items:
// the sets that it tries must contain, for each weight below the cap, one with
// the most value.
func TestTheBestSetIsAmongThoseTried(t *testing.T) {
	rnd := rand.New(rand.NewPCG(91, 92))
	for range 300 {
		items := make([]Item, 1+rnd.IntN(9))
		most := int32(0)
		for i := range items {
			items[i] = Item{int32(rnd.IntN(6)), int32(rnd.IntN(6))}
			most = max(most, items[i].Weight)
		}
		k, least := 1+rnd.IntN(len(items)), int32(rnd.IntN(12))
		most += least
		want := map[int32]int32{}
		for set := range 1 << len(items) {
			var sum Item
			for i, item := range items {
				if set>>i&1 == 1 {
					sum = Item{sum.Weight + item.Weight, sum.Value + item.Value}
				}
			}
			if w := min(sum.Weight, most); bits.OnesCount(uint(set)) == k && sum.Weight >= least {
				old, known := want[w]
				if want[w] = sum.Value; known {
					want[w] = max(old, sum.Value)
				}
			}
		}
		got := map[int32]int32{}
		EachBest(items, k, least, func(set []int32) {
			var sum Item
			seen := map[int32]bool{}
			for _, i := range set {
				sum = Item{sum.Weight + items[i].Weight, sum.Value + items[i].Value}
				seen[i] = true
			}
			if len(seen) != k || sum.Weight < least {
				t.Errorf("%d of %v with at least %d: tried %v", k, items, least, set)
			}
			got[min(sum.Weight, most)] = sum.Value
		})
		if len(got) != len(want) {
			t.Fatalf("%d of %v with at least %d: %v, want %v", k, items, least, got, want)
		}
		for w, v := range want {
			if got[w] != v {
				t.Fatalf("%d of %v with at least %d: %v, want %v", k, items, least, got, want)
			}
		}
	}
}

// TestCountsAreTheLargestSum compares Counts with all counts.
func TestCountsAreTheLargestSum(t *testing.T) {
	rnd := rand.New(rand.NewPCG(93, 94))
	for range 500 {
		a := int32(2 + rnd.IntN(5))
		sizes, count, n := []int32{a + 1 + int32(rnd.IntN(3)), a, 1}, []int32{int32(rnd.IntN(5)), int32(rnd.IntN(5)), int32(rnd.IntN(2))}, int32(rnd.IntN(30))
		want := int32(0)
		for i := range count[0] + 1 {
			for j := range count[1] + 1 {
				for k := range count[2] + 1 {
					if sum := i*sizes[0] + j*sizes[1] + k; sum <= n {
						want = max(want, sum)
					}
				}
			}
		}
		got := int32(0)
		for i, k := range Counts(sizes, count, n) {
			got += k * sizes[i]
			if k < 0 || k > count[i] {
				t.Errorf("takes %d of %d", k, count[i])
			}
		}
		if got != want {
			t.Errorf("%v of %v up to %d: %d, want %d", count, sizes, n, got, want)
		}
	}
}

func TestChoicesStopCounting(t *testing.T) {
	for _, c := range []struct{ n, k, want int }{{5, 0, 1}, {5, 2, 10}, {5, 5, 1}, {10, 5, 252}} {
		if got := Choices(c.n, c.k, 1000); got != c.want {
			t.Errorf("%d of %d: %d choices, want %d", c.k, c.n, got, c.want)
		}
	}
	if got := Choices(64, 32, 600); got <= 600 || got > 100_000 {
		t.Errorf("32 of 64: stops at %d", got)
	}
}
