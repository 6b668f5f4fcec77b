package loop

import "time"

const (
	// minGap is the least time from the begin of a tick to that of the next.
	minGap = 20 * time.Millisecond
	// maxGap is what a storm of events makes of it, in steps: what happens in
	// a storm is still answered within 100 ms.
	maxGap = 80 * time.Millisecond
	// idleGap is what becomes of it in a storm in which turn after turn finds
	// nothing to write, and idleTurns is how many of them it takes: what
	// raises such events is not for the loop to end.
	idleGap   = 320 * time.Millisecond
	idleTicks = 8
	// restShare bounds what the ticks of a storm cost on a node of any size:
	// after each the loop rests for so many times its length.
	restShare = 20
	// longestPause bounds how far apart the ticks of a large node are. Without
	// an event, the node is looked at as often as this.
	longestPause = 10 * time.Second
)

// pauseAfter returns how far apart two ticks have to be at least, so that they
// use no more of a CPU than a storm may. cost is the CPU time of a tick. While
// there is something to write, the ticks come by their period: what has just
// come is not yet bound.
func pauseAfter(cost time.Duration, wrote bool) time.Duration {
	if wrote {
		return 0
	}
	return min(restShare*cost, longestPause)
}

// A pace keeps a storm of events from eating the CPU. An event that comes
// alone is answered at once. A storm is turns that events woke and that follow
// each other closely, whether the events came in the gap between them or after.
type pace struct {
	storm int           // turns of the storm before the last one; 0: there is none
	idle  int           // the last of them that wrote nothing
	last  time.Time     // when the last tick that events woke began
	gap   time.Duration // after the last tick
}

// ticked takes note of a tick, and returns the least time from its begin to
// that of the next, which is never later than the period asks for.
func (p *pace) ticked(begun time.Time, took, period time.Duration, wrote, woken bool) time.Duration {
	if woken && begun.Sub(p.last) < max(2*idleGap, 2*p.gap) {
		p.storm++
	} else {
		p.storm, p.idle = 0, 0
	}
	if woken {
		p.last = begun
	}
	p.gap = p.rest(took, period, wrote)
	return p.gap
}

// rest is the gap after a tick.
func (p *pace) rest(took, period time.Duration, wrote bool) time.Duration {
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
