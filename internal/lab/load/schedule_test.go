package load

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestPoissonScheduleHasExponentialGapsAtTheRate(t *testing.T) {
	c := Config{Rate: 10000, Arrival: Poisson, Seed: 7}
	const threads, total = 3, 10 * time.Second
	var all []int64
	for i := range threads {
		all = append(all, schedule(c, i, threads, total)...)
	}
	slices.Sort(all)
	if n := float64(len(all)); math.Abs(n-100e3) > 4*math.Sqrt(100e3) {
		t.Errorf("%v requests in 10 s at 10000 a second", n)
	}
	var sum, squares float64
	for i := 1; i < len(all); i++ {
		gap := float64(all[i] - all[i-1])
		sum += gap
		squares += gap * gap
	}
	n := float64(len(all) - 1)
	mean := sum / n
	if cv := math.Sqrt(squares/n-mean*mean) / mean; math.Abs(cv-1) > 0.02 {
		t.Errorf("gaps have a coefficient of variation of %.3f; exponential ones have 1", cv)
	}
}

func TestScheduleIsRepeatable(t *testing.T) {
	c := Config{Rate: 1000, Arrival: Poisson, Seed: 7}
	if a, b := schedule(c, 0, 2, time.Second), schedule(c, 0, 2, time.Second); !slices.Equal(a, b) {
		t.Error("the same seed gave two schedules")
	}
	if a, b := schedule(c, 0, 2, time.Second), schedule(c, 1, 2, time.Second); slices.Equal(a, b) {
		t.Error("two threads have the same schedule")
	}
	other := c
	other.Seed = 8
	if a, b := schedule(c, 0, 2, time.Second), schedule(other, 0, 2, time.Second); slices.Equal(a, b) {
		t.Error("two seeds gave the same schedule")
	}
}

func TestConstantScheduleIsEvenOverAllThreads(t *testing.T) {
	var all []int64
	for i := range 4 {
		all = append(all, schedule(Config{Rate: 1000, Arrival: Constant}, i, 4, time.Second)...)
	}
	slices.Sort(all)
	if len(all) != 1000 {
		t.Fatalf("%d requests in 1 s at 1000 a second", len(all))
	}
	for i, at := range all {
		if at != int64(i)*int64(time.Millisecond) {
			t.Fatalf("request %d is due at %v", i, time.Duration(at))
		}
	}
}
