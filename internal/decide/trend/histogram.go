package trend

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// A Scale holds the bounds of the buckets of a histogram. Bucket n begins at
// element n and ends at element n+1.
type Scale []int64

// ScaleOf returns a scale. The width of its first bucket is first. Each
// following bucket is wider than the one before by growthPercent percent. The
// scale ends with the first bound of most or more. The arithmetic uses
// integers, so that every machine gets the same bounds.
func ScaleOf(first, most, growthPercent int64) Scale {
	const fine = 1 << 10 // fixed-point factor: without it, the division would lose the growth of narrow buckets
	var s Scale
	for from, width := int64(0), first*fine; ; width += width * growthPercent / 100 {
		s = append(s, from/fine)
		if from/fine >= most {
			return s
		}
		from += width
	}
}

// bucket returns the number of the bucket that holds v.
func (s Scale) bucket(v int64) int64 {
	n := sort.Search(len(s), func(i int) bool { return s[i] > v })
	return int64(max(n-1, 0))
}

const (
	// fullWeight is the weight of a sample at the start of a half-life. The
	// weight of new samples doubles during a half-life, along a straight line.
	// Then all weights are halved. A sample that is older by one half-life
	// therefore counts half as much, without fractions. The exact curve is at
	// most 6 % below the line.
	fullWeight = 1 << 10
	// minShare is the weight that one sample has after six half-lives. A
	// bucket with less weight is dropped.
	minShare = fullWeight >> 6
	// mostWeight is far above the weight of a bucket with a sample in each second, and so
	// small that no sum of weights overflows.
	mostWeight = 1 << 40
	// MaxBuckets is the maximum number of buckets of a Histogram.
	MaxBuckets = 48
)

// A Histogram counts samples in buckets, and forgets them slowly: a sample
// loses half of its weight in each half-life. It stores only buckets that are
// not empty, and at most MaxBuckets. It is a value: Add returns a new one.
type Histogram struct {
	// Passed is the time since all weights were last halved.
	Passed time.Duration `json:"passed_ns,omitempty"`
	// Buckets are pairs of a bucket's number and its weight, in ascending
	// order.
	Buckets [][2]int64 `json:"buckets,omitempty"`
}

// Add returns the histogram with the new sample v, elapsed after the last one.
func (h Histogram) Add(s Scale, v int64, elapsed, halfLife time.Duration) Histogram {
	passed := h.Passed + max(elapsed, 0)
	halvings := min(int64(passed/halfLife), 62)
	passed %= halfLife
	next := Histogram{Passed: passed, Buckets: make([][2]int64, 0, len(h.Buckets)+1)}
	for _, b := range h.Buckets {
		if b[1] >>= halvings; b[1] >= minShare {
			next.Buckets = append(next.Buckets, b)
		}
	}
	n, weight := s.bucket(v), fullWeight+fullWeight*int64(passed/time.Millisecond)/max(int64(halfLife/time.Millisecond), 1)
	at, found := slices.BinarySearchFunc(next.Buckets, n, func(b [2]int64, n int64) int { return int(b[0] - n) })
	if found {
		next.Buckets[at][1] += weight
	} else {
		next.Buckets = slices.Insert(next.Buckets, at, [2]int64{n, weight})
	}
	if len(next.Buckets) > MaxBuckets {
		next.Buckets = mergeLightest(next.Buckets)
	}
	return next
}

// mergeLightest adds the weight of the lightest bucket to the bucket above it.
// This can make a percentile too high, but never too low.
func mergeLightest(buckets [][2]int64) [][2]int64 {
	least := 0
	for i, b := range buckets[:len(buckets)-1] {
		if b[1] < buckets[least][1] {
			least = i
		}
	}
	buckets[least+1][1] += buckets[least][1]
	return slices.Delete(buckets, least, least+1)
}

// Check returns an error for a histogram that Add could not have made with a scale and a
// half-life.
func (h Histogram) Check(s Scale, halfLife time.Duration) error {
	if h.Passed < 0 || h.Passed >= halfLife {
		return fmt.Errorf("passed %v of a half-life of %v", h.Passed, halfLife)
	}
	if len(h.Buckets) > MaxBuckets {
		return fmt.Errorf("%d buckets: want %d or fewer", len(h.Buckets), MaxBuckets)
	}
	last := int64(-1)
	for _, b := range h.Buckets {
		if b[0] <= last || b[0] >= int64(len(s)) || b[1] < minShare || b[1] > mostWeight {
			return fmt.Errorf("bucket %d after %d weighs %d", b[0], last, b[1])
		}
		last = b[0]
	}
	return nil
}

// Percentile returns an upper bound of the given percentile: the end of the
// first bucket with which the sum of the weights reaches percent of the total.
// If there is no sample, Percentile returns false.
func (h Histogram) Percentile(s Scale, percent int64) (int64, bool) {
	var total, below int64
	for _, b := range h.Buckets {
		total += b[1]
	}
	for _, b := range h.Buckets {
		if below += b[1]; below*100 >= total*percent {
			return s[min(b[0]+1, int64(len(s)-1))], true
		}
	}
	return 0, false
}
