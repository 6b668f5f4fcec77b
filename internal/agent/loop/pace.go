package loop

import "time"

const (
	// minGap is the minimum time from the start of a tick to the start of the
	// next.
	minGap = 20 * time.Millisecond
	// During a storm of events the gap grows in steps up to maxGap. The agent
	// then still answers within 100 ms.
	maxGap = 80 * time.Millisecond
	// If several ticks of a storm in a row (idleTicks) have nothing to write, the
	// gap grows up to idleGap. The loop cannot end the cause of such events.
	idleGap   = 320 * time.Millisecond
	idleTicks = 8
	// restShare bounds what the ticks of a storm cost on a node of any size.
	// After each tick, the loop rests for restShare times the length of that
	// tick.
	restShare = 20
	// pauseShare bounds what the ticks of a large node without events cost. The
	// pause is pauseShare times the CPU time of a tick. pauseShare is larger
	// than restShare, because the whole process may use 5 % of a CPU, and its
	// other parts need some of that.
	pauseShare = 25
	// longestPause is the longest time between two ticks on a large node
	// without events.
	longestPause = 10 * time.Second
)

// pauseAfter returns the minimum time between two ticks. With it, ticks use at
// most 1/pauseShare of a CPU. The cost is the CPU time of a tick. After a tick
// that wrote, pauseAfter returns 0, so that the next tick comes after the usual
// period: new work may not have its limits yet.
func pauseAfter(cost time.Duration, wrote bool) time.Duration {
	if wrote {
		return 0
	}
	return min(pauseShare*cost, longestPause)
}

// A pace limits the CPU that a storm of events can cost. A single event starts
// a tick at once. A storm is a sequence of ticks that follow each other
// closely, and that events have started.
type pace struct {
	storm int           // turns of the storm before the last one; 0: there is none
	idle  int           // number of ticks in a row, up to the last one, that wrote nothing
	last  time.Time     // when the last tick that events woke began
	gap   time.Duration // after the last tick
}

// recordTick records a tick. It returns the minimum time from the start of this
// tick to the start of the next one, which never exceeds the period.
func (p *pace) recordTick(begun time.Time, took, period time.Duration, wrote, woken bool) time.Duration {
	if woken && begun.Sub(p.last) < max(2*idleGap, 2*p.gap) {
		p.storm++
	} else {
		p.storm, p.idle = 0, 0
	}
	if woken {
		p.last = begun
	}
	p.gap = p.gapAfter(took, period, wrote)
	return p.gap
}

// gapAfter returns the gap after a tick.
func (p *pace) gapAfter(took, period time.Duration, wrote bool) time.Duration {
	if p.storm == 0 {
		return minGap
	}
	if p.idle++; wrote {
		p.idle = 0
	}
	gap := min(minGap<<min(p.storm, 8), maxGap)
	if p.idle >= idleTicks {
		gap = idleGap
	}
	return max(minGap, min(max(gap, took*(1+restShare)), period))
}
