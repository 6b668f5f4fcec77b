// Package trend turns counters into the numbers that policies decide on:
// rates, and averages that forget. It keeps no state of its own; what must be
// remembered is passed in and handed back.
package trend

import (
	"math"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Rate is the CPU used between two readings of a CPU time counter. It is
// false if the readings do not make a rate: no time passed, or the counter
// went back (a cgroup was removed and made again).
func Rate(before, after, elapsed time.Duration) (unit.MilliCPU, bool) {
	used := after - before
	if elapsed <= 0 || used < 0 {
		return 0, false
	}
	return unit.MilliCPU(math.Round(float64(used) / float64(elapsed) * 1000)), true
}

// Decay moves an exponentially weighted mean towards a new sample that stands
// for the last elapsed time: a sample loses 1/e of its weight in each tau.
func Decay(mean, sample unit.MilliCPU, elapsed, tau time.Duration) unit.MilliCPU {
	if tau <= 0 {
		return sample
	}
	keep := math.Exp(-float64(elapsed) / float64(tau))
	return unit.MilliCPU(math.Round(keep*float64(mean) + (1-keep)*float64(sample)))
}

// Follow moves the means of many CPU time counters by one sample each: before
// and after are two readings of them, elapsed apart, and tau is as in Decay. A
// counter without a mean starts with its sample. A counter whose two readings
// do not make a rate has no mean in the result.
func Follow[K comparable](mean map[K]unit.MilliCPU, before, after map[K]time.Duration, elapsed, tau time.Duration) map[K]unit.MilliCPU {
	next := make(map[K]unit.MilliCPU, len(after))
	for k, now := range after {
		then, had := before[k]
		sample, ok := Rate(then, now, elapsed)
		if !had || !ok {
			continue
		}
		if m, seen := mean[k]; seen {
			sample = Decay(m, sample, elapsed, tau)
		}
		next[k] = sample
	}
	return next
}
