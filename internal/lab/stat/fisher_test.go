package stat

import (
	"math"
	"testing"
)

// TestFisherAgreesWithKnownTables compares p values with exact sums of
// hypergeometric probabilities.
func TestFisherAgreesWithKnownTables(t *testing.T) {
	for _, c := range []struct {
		a, n, b, m int
		p          float64
	}{
		{3, 4, 1, 4, 0.485714}, // Fisher's lady who tastes tea
		{0, 10, 0, 12, 1},
		{10, 10, 0, 10, 1.0825e-05},
		{1, 10, 11, 14, 0.0027595},
		{0, 0, 3, 7, 1},
	} {
		for _, p := range []float64{Fisher(c.a, c.n, c.b, c.m), Fisher(c.b, c.m, c.a, c.n)} {
			if math.Abs(p-c.p) > 1e-4*c.p {
				t.Errorf("%d of %d, %d of %d: p = %v, want %v", c.a, c.n, c.b, c.m, p, c.p)
			}
		}
	}
}
