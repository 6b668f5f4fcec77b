package node

import (
	"math"
	"time"
)

// DelayBound is the length that the waits of a bucket of RunQueueDelay.Counts
// are below, whatever the last bucket holds.
func DelayBound(bucket int) time.Duration { return 256 << min(max(bucket, 0), 40) }

// Since returns what d has more than an earlier reading of the same workload.
// Without two readings of a counter it has none.
func (d RunQueueDelay) Since(before RunQueueDelay) RunQueueDelay {
	var grown RunQueueDelay
	then, had := before.Sum.Value()
	if now, has := d.Sum.Value(); had && has && now >= then {
		grown.Sum = Some(now - then)
	}
	if len(d.Counts) != len(before.Counts) || len(d.Counts) == 0 {
		return grown
	}
	counts := make([]uint64, len(d.Counts))
	for i, n := range d.Counts {
		if n < before.Counts[i] {
			return grown // made again
		}
		counts[i] = n - before.Counts[i]
	}
	grown.Counts = counts
	return grown
}

// Quantile returns a length that at least the share q, from 0 to 1, of the
// waits are below: the end of the bucket that holds the quantile, so at most
// twice the true one. Without waits, or where only their sum is known, it is
// missing, and so it is if the quantile lies in the last bucket.
func (d RunQueueDelay) Quantile(q float64) Maybe[time.Duration] {
	var all, seen uint64
	for _, n := range d.Counts {
		all += n
	}
	rank := uint64(math.Ceil(q * float64(all)))
	for bucket, n := range d.Counts {
		if seen += n; n > 0 && seen >= rank && bucket < len(d.Counts)-1 {
			return Some(DelayBound(bucket))
		}
	}
	return Maybe[time.Duration]{}
}
