package rqdelay

import (
	"math"
	"time"
)

// Buckets is the number of buckets of a Histogram.
const Buckets = int(delayTenonLimitTENON_BUCKETS)

// Unbounded is the upper bound of the last bucket.
const Unbounded time.Duration = math.MaxInt64

// A Histogram counts waits in buckets whose upper bounds are powers of two.
type Histogram struct {
	Counts [Buckets]uint64
	Sum    time.Duration // sum of all waits
}

// UpperBound returns the exclusive upper bound of a bucket. It is 256 ns for
// bucket 0, and doubles from bucket to bucket, up to 34 s. The last bucket has
// the bound Unbounded.
func UpperBound(bucket int) time.Duration {
	if bucket >= Buckets-1 {
		return Unbounded
	}
	return 1 << (bucket + int(delayTenonLimitTENON_LEAST_BITS))
}

// Count is the number of waits.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Mean is the mean wait. It is 0 if there are no waits.
func (h Histogram) Mean() time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	return time.Duration(uint64(h.Sum) / n)
}

// Quantile returns the upper bound of the bucket in which the quantile q lies.
// This is at most twice the true value, or Unbounded for the last bucket. If
// there are no waits, Quantile returns false.
func (h Histogram) Quantile(q float64) (time.Duration, bool) {
	n := h.Count()
	if n == 0 || math.IsNaN(q) {
		return 0, false
	}
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(n)))
	var seen uint64
	for bucket, c := range h.Counts {
		if seen += c; c > 0 && seen >= rank {
			return UpperBound(bucket), true
		}
	}
	return Unbounded, true // floating-point rounding made rank larger than n, above 2^53 waits
}

// Plus returns the sum of two histograms.
func (h Histogram) Plus(g Histogram) Histogram {
	for i := range h.Counts {
		h.Counts[i] += g.Counts[i]
	}
	h.Sum += g.Sum
	return h
}

// Since returns the waits that h has in addition to an earlier histogram g.
func (h Histogram) Since(g Histogram) Histogram {
	for i := range h.Counts {
		h.Counts[i] = growth(h.Counts[i], g.Counts[i])
	}
	h.Sum = growth(h.Sum, g.Sum)
	return h
}

// growth returns the growth of a counter. A counter may seem to shrink, because
// the kernel writes it during the reading. growth then returns 0.
func growth[N uint64 | time.Duration](now, before N) N {
	if now < before {
		return 0
	}
	return now - before
}
