package rqdelay

import (
	"math"
	"testing"
	"time"
)

// waits makes a histogram of waits that have the given lengths.
// It finds the bucket of each with UpperBound.
func waits(lengths ...time.Duration) Histogram {
	var h Histogram
	for _, d := range lengths {
		bucket := 0
		for d >= UpperBound(bucket) {
			bucket++
		}
		h.Counts[bucket]++
		h.Sum += d
	}
	return h
}

func TestBucketsDoubleFromAQuarterOfAMicrosecondToManySeconds(t *testing.T) {
	if got := UpperBound(0); got != 256*time.Nanosecond {
		t.Errorf("bucket 0 ends at %v", got)
	}
	for b := 1; b < Buckets-1; b++ {
		if UpperBound(b) != 2*UpperBound(b-1) {
			t.Errorf("bucket %d ends at %v, the one before at %v", b, UpperBound(b), UpperBound(b-1))
		}
	}
	if got := UpperBound(Buckets - 2); got < 16*time.Second {
		t.Errorf("the last bound is %v, want 16 s or more", got)
	}
	if got := UpperBound(Buckets - 1); got != Unbounded {
		t.Errorf("the last bucket ends at %v", got)
	}
}

func TestQuantileIsAnUpperBoundAndAtMostTwiceTheTruth(t *testing.T) {
	const us = time.Microsecond
	lengths := []time.Duration{us, 2 * us, 3 * us, 10 * us, 11 * us, 40 * us, 100 * us, 1000 * us, 5000 * us, 20000 * us}
	h := waits(lengths...)
	for i, truth := range lengths {
		q := float64(i+1) / float64(len(lengths))
		got, ok := h.Quantile(q)
		if !ok || got <= truth || got > 2*truth {
			t.Errorf("quantile %g: %v, %v; want a bound above %v and at most twice that", q, got, ok, truth)
		}
	}
}

func TestQuantileAtTheEdges(t *testing.T) {
	const ms = time.Millisecond
	h := waits(ms, 100*ms)
	for name, c := range map[string]struct {
		h    Histogram
		q    float64
		want time.Duration
		ok   bool
	}{
		"no waits":             {Histogram{}, 0.5, 0, false},
		"no share":             {h, 0, 1048576, true},
		"below no share":       {h, -1, 1048576, true},
		"all":                  {h, 1, 1 << 27, true},
		"more than all":        {h, 2, 1 << 27, true},
		"not a number":         {h, math.NaN(), 0, false},
		"longer than all ends": {waits(time.Hour), 0.5, Unbounded, true},
	} {
		if got, ok := c.h.Quantile(c.q); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestHistogramsAddAndSubtract(t *testing.T) {
	const ms = time.Millisecond
	a, b := waits(ms, 2*ms), waits(5*ms)
	both := a.Plus(b)
	if both != waits(ms, 2*ms, 5*ms) {
		t.Errorf("sum %+v", both)
	}
	if both.Since(a) != b {
		t.Errorf("difference %+v, want %+v", both.Since(a), b)
	}
	if got := a.Since(both); got != (Histogram{}) {
		t.Errorf("a counter that shrank gives a difference: %+v", got)
	}
	if n, mean := both.Count(), both.Mean(); n != 3 || mean != 8*ms/3 {
		t.Errorf("%d waits of %v", n, mean)
	}
	if got := (Histogram{}).Mean(); got != 0 {
		t.Errorf("mean without waits: %v", got)
	}
}
