package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// TestTheBoundsOfAShareHoldIfTheValuesOfABlockAreAlike draws blocks of ten values
// of 0 or 1. In some laws all values of a bad block are 1, so that they are no
// independent evidence.
func TestTheBoundsOfAShareHoldIfTheValuesOfABlockAreAlike(t *testing.T) {
	const trials = 1000
	const most = 0.05 + 0.021 // three standard errors of a proportion in 1000 trials
	for name, law := range map[string]struct {
		bad, within, without float64 // share of bad blocks; of ones in a bad block, and in another one
	}{
		"independent values":    {0, 0, 0.01},
		"one bad block in 100":  {0.01, 1, 0},
		"one bad block in 20":   {0.05, 1, 0},
		"blocks that are worse": {0.3, 0.2, 0.02},
	} {
		truth := law.bad*law.within + (1-law.bad)*law.without
		for _, n := range []int{12, 60, 300} {
			rng, rule := rand.New(rand.NewPCG(7, uint64(n))), paired.Blocks().Planned(n)
			above, below := 0, 0
			for range trials {
				values := map[int][]float64{}
				for block := range n {
					share := law.without
					if rng.Float64() < law.bad {
						share = law.within
					}
					for range 10 {
						v := 0.0
						if rng.Float64() < share {
							v = 1
						}
						values[block] = append(values[block], v)
					}
				}
				switch e := ShareAbove(values, 0.5, rule); {
				case AtMost(e, truth) == Met:
					below++
				case AtLeast(e, truth) == Met:
					above++
				}
			}
			for what, count := range map[string]int{"below": below, "above": above} {
				if got := float64(count) / trials; got > most {
					t.Errorf("%s, %d blocks: %.1f %% of the experiments claim a share %s the true one, want at most %.1f %%", name, n, 100*got, what, 100*most)
				}
			}
		}
	}
}

// TestNoValueAboveTheLimitBoundsTheShareByTheBlocks checks the bound of blocks
// without a value above the limit. However many values they have, it is
// 1 − 0.05^(1/n).
func TestNoValueAboveTheLimitBoundsTheShareByTheBlocks(t *testing.T) {
	for _, n := range []int{1, 4, 12, 298, 299} {
		values := map[int][]float64{}
		for block := range n {
			values[block] = []float64{1, 2, 3, 4, 5}
		}
		e := ShareAbove(values, 10, paired.Blocks().Planned(n))
		if want := 1 - math.Pow(0.05, 1/float64(n)); math.Abs(e.ClaimUpper-want) > 1e-9 || e.Value != 0 || e.ClaimLower != 0 || e.Blocks != n {
			t.Errorf("%d blocks: %+v, want an upper bound of %v", n, e, want)
		}
		if met := AtMost(e, 0.01) == Met; met != (n == 299) {
			t.Errorf("%d blocks: below 1 %%: %v", n, met)
		}
	}
	for share, want := range map[float64]int{0.01: 299, 0.1: 29, 0.05: 59} {
		if got := BlocksWithout(share, 0.05); got != want {
			t.Errorf("a share of %v needs %d blocks, want %d", share, got, want)
		}
	}
}

func TestAShareOfNoBlocksIsNotKnown(t *testing.T) {
	e := ShareAbove(map[int][]float64{1: nil}, 1, paired.Blocks().Planned(12))
	if !math.IsNaN(e.Value) || e.Blocks != 0 || e.ClaimUpper != 1 || e.ClaimLower != 0 || AtMost(e, 0.5) != Undecided {
		t.Errorf("%+v", e)
	}
	every := ShareAbove(map[int][]float64{1: {2}, 2: {3, math.Inf(1)}}, 1, paired.Blocks().Planned(2))
	if every.Value != 1 || every.ClaimUpper != 1 || every.Blocks != 2 {
		t.Errorf("%+v", every)
	}
}

// TestAPooledQuantileDecidesNoClaim checks that values of which several may come
// from one block decide nothing.
func TestAPooledQuantileDecidesNoClaim(t *testing.T) {
	e := Quantile(make([]float64, 500), 0.99)
	if e.Upper != 0 || AtMost(e, 1) != Undecided || AtLeast(e, -1) != Undecided {
		t.Errorf("%+v", e)
	}
}
