package node

import (
	"math"
	"time"
)

// DelayBound returns the upper bound of the waits in a bucket of
// RunQueueDelay.Counts. The last bucket also holds longer waits.
func DelayBound(bucket int) time.Duration { return 256 << min(max(bucket, 0), 40) }

// Since returns how much each counter of d has grown since an earlier reading, before.
// A counter that is missing in d or in before is missing in the result, too.
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
			return grown // the counter started again from 0
		}
		counts[i] = n - before.Counts[i]
	}
	grown.Counts = counts
	return grown
}

// Quantile returns an upper bound of the quantile q (0 to 1) of the waits. The
// bound is at most twice the true value. It is absent if there are no waits or
// no counts, and if the quantile lies in the last bucket, which has no end.
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
