package rqdelay

import (
	"math"
	"time"
)

// Buckets is the number of buckets of a Histogram.
const Buckets = int(delayTenonLimitTENON_BUCKETS)

// Unbounded is the upper bound of the last bucket.
const Unbounded time.Duration = math.MaxInt64

// A Histogram counts waits by their length in powers of two.
type Histogram struct {
	Counts [Buckets]uint64
	Sum    time.Duration // of all waits
}

// UpperBound is the length that all waits of a bucket are below: 256 ns for
// bucket 0, twice the one before for each other, 34 s for the last but one.
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

// Mean is the mean wait; of no waits it is 0.
func (h Histogram) Mean() time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	return time.Duration(uint64(h.Sum) / n)
}

// Quantile returns a length that at least the share q of all waits are below:
// the upper bound of the bucket that holds the quantile, so at most twice the
// true one. It is Unbounded in the last bucket. Without waits it reports false.
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
	return Unbounded, true // rank was rounded up beyond n, above 2^53 waits
}

// Plus returns the waits of both.
func (h Histogram) Plus(g Histogram) Histogram {
	for i := range h.Counts {
		h.Counts[i] += g.Counts[i]
	}
	h.Sum += g.Sum
	return h
}

// Since returns the waits of h that the earlier g does not have.
func (h Histogram) Since(g Histogram) Histogram {
	for i := range h.Counts {
		h.Counts[i] = grown(h.Counts[i], g.Counts[i])
	}
	h.Sum = grown(h.Sum, g.Sum)
	return h
}

// grown is how much a counter has grown. Counters are read while the kernel
// writes them, so one that seems to have shrunk has not grown.
func grown[N uint64 | time.Duration](now, before N) N {
	if now < before {
		return 0
	}
	return now - before
}
