package trend

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestScalesGrowByTheirPercent(t *testing.T) {
	s := ScaleOf(25, 1024_000, 5)
	if s[0] != 0 || s[1] != 25 || s[2] != 51 || s[3] != 78 { // 25 + 26.25 + 27.5625
		t.Errorf("the scale begins with %v", s[:4])
	}
	if last := s[len(s)-1]; last < 1024_000 || last > 1024_000*106/100 || len(s) > 200 {
		t.Errorf("%d buckets up to %d", len(s), last)
	}
	if !slices.IsSorted(s) {
		t.Error("a bucket ends before it begins")
	}
	for v, want := range map[int64]int64{-5: 0, 0: 0, 24: 0, 25: 1, 50: 1, 51: 2, 1 << 40: int64(len(s) - 1)} {
		if got := s.bucket(v); got != want {
			t.Errorf("%d is in bucket %d, want %d", v, got, want)
		}
	}
}

func TestAPercentileIsTheEndOfItsBucket(t *testing.T) {
	s := ScaleOf(100, 100_000, 5)
	var h Histogram
	if _, ok := h.Percentile(s, 95); ok {
		t.Error("a percentile of nothing")
	}
	for range 94 {
		h = h.Add(s, 10, 0, time.Hour)
	}
	for range 6 {
		h = h.Add(s, 1000, 0, time.Hour)
	}
	if got, _ := h.Percentile(s, 94); got != 100 {
		t.Errorf("94 %% do not exceed %d, want 100", got)
	}
	got, _ := h.Percentile(s, 95)
	if got != 1102 { // the 9th bucket: 100 · (1.05⁹ − 1) / 0.05
		t.Errorf("95 %% do not exceed %d, want 1102", got)
	}
}

// TestASampleLosesHalfItsWeightInAHalfLife compares one old sample of high
// weight with several new ones.
func TestASampleLosesHalfItsWeightInAHalfLife(t *testing.T) {
	s := ScaleOf(100, 100_000, 5)
	h := Histogram{}.Add(s, 5000, 0, 12*time.Hour)
	weight := func(h Histogram, v int64) int64 {
		for _, b := range h.Buckets {
			if b[0] == s.bucket(v) {
				return b[1]
			}
		}
		return 0
	}
	for halfLives := range int64(7) {
		if got := weight(h, 5000); got != fullWeight>>halfLives {
			t.Errorf("after %d half-lives it weighs %d, want %d", halfLives, got, fullWeight>>halfLives)
		}
		h = h.Add(s, 10, 12*time.Hour, 12*time.Hour)
	}
	if weight(h, 5000) != 0 || len(h.Buckets) != 1 {
		t.Errorf("it is not forgotten after seven: %v", h.Buckets)
	}
	// Within one half-life, a newer sample weighs more than an older one.
	early := Histogram{}.Add(s, 10, 0, 12*time.Hour)
	late := early.Add(s, 5000, 11*time.Hour, 12*time.Hour)
	if a, b := weight(late, 10), weight(late, 5000); b <= a*18/10 || b > 2*a {
		t.Errorf("an hour before a half-life is over, the new one weighs %d and the old one %d", b, a)
	}
}

func TestAHistogramIsBoundedAndNeverTakesAPeakForLower(t *testing.T) {
	s := ScaleOf(25, 1024_000, 5)
	rnd := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var all []int64
	for range 3000 {
		v := int64(rnd.ExpFloat64() * 30_000)
		all = append(all, v)
		h = h.Add(s, v, 0, time.Hour)
	}
	if len(h.Buckets) > MaxBuckets || !slices.IsSortedFunc(h.Buckets, func(a, b [2]int64) int { return int(a[0] - b[0]) }) {
		t.Errorf("%d buckets: %v", len(h.Buckets), h.Buckets)
	}
	slices.Sort(all)
	for _, p := range []int64{50, 90, 95, 98} {
		exact := all[len(all)*int(p)/100-1]
		got, _ := h.Percentile(s, p)
		if got < exact || got > exact*13/10 {
			t.Errorf("%d %% do not exceed %d, in truth %d", p, got, exact)
		}
	}
	data, err := json.Marshal(h)
	var back Histogram
	if err != nil || json.Unmarshal(data, &back) != nil || !slices.Equal(back.Buckets, h.Buckets) {
		t.Errorf("%s, %v", data, err)
	}
	if len(data) > 20*MaxBuckets {
		t.Errorf("%d bytes", len(data))
	}
}

func TestAddChangesNothingThatExists(t *testing.T) {
	s := ScaleOf(25, 1024_000, 5)
	h := Histogram{}.Add(s, 100, 0, time.Hour).Add(s, 300, 0, time.Hour)
	before := slices.Clone(h.Buckets)
	h.Add(s, 100, time.Hour, time.Hour)
	h.Add(s, 200, 0, time.Hour)
	if !slices.Equal(h.Buckets, before) {
		t.Errorf("%v became %v", before, h.Buckets)
	}
}
