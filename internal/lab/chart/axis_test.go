package chart

import (
	"slices"
	"testing"
)

func TestAShortLogAxisHasTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []float64
	}{
		{0.54, 0.92, []float64{0.6, 0.7, 0.8, 0.9}},
		{0.5, 9, []float64{0.5, 1, 2, 5}},
		{1, 1000, []float64{1, 3, 10, 30, 100, 300, 1000}},
	} {
		near := func(a, b float64) bool { return a > b*(1-1e-9) && a < b*(1+1e-9) }
		n := max(6, len(c.want))
		if got := (Axis{Low: c.low, High: c.high, Log: true}).Ticks(n); !slices.EqualFunc(got, c.want, near) {
			t.Errorf("axis from %v to %v: ticks %v, want %v", c.low, c.high, got, c.want)
		}
	}
}
