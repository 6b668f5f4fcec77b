package trend

import (
	"slices"
	"sort"
	"time"
)

// A Scale is the bounds of a histogram's buckets: bucket n begins at the nth
// number and ends at the next.
type Scale []int64

// ScaleOf returns the scale whose first bucket is as wide as first and whose
// next are each growthPercent wider than the one before, up to most. The
// arithmetic is in integers, so that every machine has the same bounds.
func ScaleOf(first, most, growthPercent int64) Scale {
	const fine = 1 << 10 // keeps what the division of narrow buckets would lose
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
	// full is the weight of a sample at the begin of a half-life. It grows to
	// twice that until the end, when all weights are halved: what is older by
	// a half-life counts half as much, without a fraction anywhere. Between
	// the two this is a line where the exact curve sags by 6 % at most.
	full = 1 << 10
	// leastShare is the weight below which a bucket is forgotten: that of one
	// sample after six half-lives.
	leastShare = full >> 6
	// MaxBuckets is how many buckets a Histogram has at most.
	MaxBuckets = 48
)

// A Histogram counts samples in buckets, and forgets: a sample loses half of
// its weight in each half-life. It holds only the buckets that are not empty,
// at most MaxBuckets of them. It is a value: nothing changes one that exists.
type Histogram struct {
	// Passed is how long ago the weights were halved.
	Passed time.Duration `json:"passed_ns,omitempty"`
	// Buckets are pairs of a bucket's number and its weight, ascending.
	Buckets [][2]int64 `json:"buckets,omitempty"`
}

// Add returns the histogram as it is after some time, with a sample of then.
func (h Histogram) Add(s Scale, v int64, elapsed, halfLife time.Duration) Histogram {
	passed := h.Passed + max(elapsed, 0)
	halvings := min(int64(passed/halfLife), 62)
	passed %= halfLife
	next := Histogram{Passed: passed, Buckets: make([][2]int64, 0, len(h.Buckets)+1)}
	for _, b := range h.Buckets {
		if b[1] >>= halvings; b[1] >= leastShare {
			next.Buckets = append(next.Buckets, b)
		}
	}
	n, weight := s.bucket(v), full+full*int64(passed/time.Millisecond)/max(int64(halfLife/time.Millisecond), 1)
	at, found := slices.BinarySearchFunc(next.Buckets, n, func(b [2]int64, n int64) int { return int(b[0] - n) })
	if found {
		next.Buckets[at][1] += weight
	} else {
		next.Buckets = slices.Insert(next.Buckets, at, [2]int64{n, weight})
	}
	if len(next.Buckets) > MaxBuckets {
		next.Buckets = merged(next.Buckets)
	}
	return next
}

// merged joins the lightest bucket to the one above it: a peak may be taken
// for higher than it was, never for lower.
func merged(buckets [][2]int64) [][2]int64 {
	least := 0
	for i, b := range buckets[:len(buckets)-1] {
		if b[1] < buckets[least][1] {
			least = i
		}
	}
	buckets[least+1][1] += buckets[least][1]
	return slices.Delete(buckets, least, least+1)
}

// Percentile returns what percent of the weight do not exceed: the end of the
// bucket in which that is reached. It is false while there is no sample.
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
