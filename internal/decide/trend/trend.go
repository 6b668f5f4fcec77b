// Package trend computes rates and decaying averages from counters, for the
// policies. It keeps no state: the caller passes the previous state, and gets
// the next one.
package trend

import (
	"math"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Rate returns how much CPU was used between two readings of a CPU time
// counter. If no time has passed, it returns false. If the counter has
// decreased, the cgroup was removed and created again, and Rate returns false,
// too.
func Rate(before, after, elapsed time.Duration) (unit.MilliCPU, bool) {
	used := after - before
	if elapsed <= 0 || used < 0 {
		return 0, false
	}
	return unit.MilliCPU(math.Round(float64(used) / float64(elapsed) * 1000)), true
}

// Decay updates an exponentially weighted mean with a sample for the last
// elapsed time. In each tau, the weight of a sample falls to 1/e.
func Decay(mean, sample unit.MilliCPU, elapsed, tau time.Duration) unit.MilliCPU {
	return weighed(keptOf(elapsed, tau), mean, sample)
}

// keptOf returns the weight that a mean keeps after the elapsed time.
func keptOf(elapsed, tau time.Duration) float64 {
	if tau <= 0 {
		return 0
	}
	return math.Exp(-float64(elapsed) / float64(tau))
}

func weighed(keep float64, mean, sample unit.MilliCPU) unit.MilliCPU {
	if keep == 0 {
		return sample
	}
	return unit.MilliCPU(math.Round(keep*float64(mean) + (1-keep)*float64(sample)))
}

// Follow updates the means of many CPU time counters with one sample each: the
// rate between two readings (before, after) that are elapsed apart. tau is the
// time constant of the means, as in Decay. A counter that has no mean yet gets
// the sample as its mean. A counter has no mean in the result if it has
// decreased, or is missing in one of the readings.
func Follow[K comparable](mean map[K]unit.MilliCPU, before, after map[K]time.Duration, elapsed, tau time.Duration) map[K]unit.MilliCPU {
	next := make(map[K]unit.MilliCPU, len(after))
	keep := keptOf(elapsed, tau) // once: it costs more than all else here
	for k, now := range after {
		then, had := before[k]
		sample, ok := Rate(then, now, elapsed)
		if !had || !ok {
			continue
		}
		if m, seen := mean[k]; seen {
			sample = weighed(keep, m, sample)
		}
		next[k] = sample
	}
	return next
}

// Smooth is like Follow, but the caller has already computed the samples. A
// counter without a sample has no mean in the result.
func Smooth[K comparable](mean, samples map[K]unit.MilliCPU, elapsed, tau time.Duration) map[K]unit.MilliCPU {
	next := make(map[K]unit.MilliCPU, len(samples))
	keep := keptOf(elapsed, tau)
	for k, sample := range samples {
		if m, seen := mean[k]; seen {
			sample = weighed(keep, m, sample)
		}
		next[k] = sample
	}
	return next
}
