package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestWarmupIsCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	noisy := func(n int, level func(i int) float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = level(i) * (1 + 0.05*rng.NormFloat64())
		}
		return out
	}
	for name, c := range map[string]struct {
		series   []float64
		min, max int
		ok       bool
	}{
		"flat":                           {noisy(100, func(int) float64 { return 500 }), 0, 50, true},
		"constant":                       {make([]float64, 40), 0, 0, true},
		"slow start of two seconds":      {noisy(100, func(i int) float64 { return 500 + 2000*math.Exp(-float64(i)/5) }), 10, 50, true},
		"step after one second":          {noisy(60, func(i int) float64 { return map[bool]float64{true: 900, false: 500}[i < 10] }), 8, 30, true},
		"one stall is not a warm-up":     {append(append(noisy(50, func(int) float64 { return 500 }), 50000), noisy(50, func(int) float64 { return 500 })...), 0, 50, true},
		"still climbing":                 {noisy(100, func(i int) float64 { return 500 + 10*float64(i) }), 0, 50, false},
		"too short to say":               {[]float64{1, 2, 3}, 3, 3, false},
		"nothing":                        {nil, 0, 0, false},
		"short, with a slow first tenth": {noisy(20, func(i int) float64 { return map[bool]float64{true: 5000, false: 500}[i < 2] }), 2, 10, true},
	} {
		cut, ok := Warmup(c.series)
		if cut < c.min || cut > c.max || ok != c.ok {
			t.Errorf("%s: cut %d, ok %v; want %d to %d, %v", name, cut, ok, c.min, c.max, c.ok)
		}
	}
}

func TestFlatSeriesIsRarelyCalledUnsettled(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	rejected := 0
	for range 500 {
		series := make([]float64, 50)
		for i := range series {
			series[i] = 500 * math.Exp(0.3*rng.NormFloat64())
		}
		if _, ok := Warmup(series); !ok {
			rejected++
		}
	}
	if rejected > 25 {
		t.Errorf("%d of 500 flat series called unsettled, want at most 5 %%", rejected)
	}
}
