package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// schedule returns the send times of one thread, in ns since the start of a run
// of length total. Each thread draws from its own random stream. Together, n
// Poisson processes with 1/n of the rate each are one process with the full rate.
func schedule(c Config, thread, threads int, total time.Duration) []int64 {
	mean := float64(time.Second) * float64(threads) / c.Rate
	due := make([]int64, 0, int(1.05*float64(total)/mean)+64)
	if c.Arrival == Constant {
		phase := mean * float64(thread) / float64(threads)
		for i := 0; ; i++ {
			at := phase + float64(i)*mean
			if at >= float64(total) {
				return due
			}
			due = append(due, int64(math.Round(at)))
		}
	}
	random := rand.New(rand.NewPCG(c.Seed, uint64(thread)))
	for at := random.ExpFloat64() * mean; at < float64(total); at += random.ExpFloat64() * mean {
		due = append(due, int64(at))
	}
	return due
}
