package harness

import (
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

// A LoadSpec is the load of an experiment. All modes of a block get the same
// load.
type LoadSpec load.Config

// InBlock returns the load of the runs of a block.
func (l LoadSpec) InBlock(block int) load.Config {
	c := load.Config(l)
	c.Seed += uint64(block) << 32
	return c
}

// WithLength returns the load of the runs of a block, with another length.
func (l LoadSpec) WithLength(block int, length time.Duration) load.Config {
	c := l.InBlock(block)
	c.Duration = length
	return c
}

// Trial returns a short load with another rate. It needs fewer answers than a
// run (load.Limits), because it only shows the way to the rate of the runs.
func (l LoadSpec) Trial(rate float64, length time.Duration) load.Config {
	c := l.WithLength(0, length)
	c.Rate, c.Warmup, c.Limits.AchievedRatio = rate, 300*time.Millisecond, 0.95
	return c
}

// WarmupOf returns the minimum warm-up of a run that has the given length. The
// check for stationarity may make the warm-up longer.
func WarmupOf(length time.Duration) time.Duration {
	return min(max(length/5, 500*time.Millisecond), 5*time.Second)
}
