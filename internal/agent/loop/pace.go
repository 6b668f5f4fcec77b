package loop

import "time"

const (
	// minGap is the minimum time from the start of a tick to the start of the next
	// tick.
	minGap = 20 * time.Millisecond
	// maxGap is the limit of the gap, which grows in steps during a storm of
	// events. With it, the agent still answers within 100 ms.
	maxGap = 80 * time.Millisecond
	// After idleTicks ticks of a storm without a write, the gap grows to idleGap,
	// because ticks do not end the cause of these events.
	idleGap   = 320 * time.Millisecond
	idleTicks = 8
	// restShare is the ratio of the rest after a tick of a storm to the duration
	// of the tick. It bounds the cost of a storm on a node of any size.
	restShare = 20
	// startGap is the longest gap while a container waits for its limits. The
	// container waits at most 0.9 s (cluster/containerstart), including the tick itself.
	startGap = 400 * time.Millisecond
	// pauseShare is the ratio of the time between two ticks to the CPU time of a
	// tick, on a large node without events. It is larger than restShare, because
	// other parts of the process also need CPU, and the whole process may use 5 %
	// of a CPU.
	pauseShare = 25
	// longestPause is the longest time between two ticks on a large node
	// without events.
	longestPause = 10 * time.Second
)

// pauseAfter returns the minimum time between two ticks, so that they use no
// more of a CPU than pauseShare allows. cost is the CPU time of a tick. After a
// tick with a write, pauseAfter returns 0: the next tick must not come late,
// because new work may not have its limits yet.
func pauseAfter(cost time.Duration, wrote bool) time.Duration {
	if wrote {
		return 0
	}
	return min(pauseShare*cost, longestPause)
}

// A pace limits the CPU time that a storm of events can cost. A storm is a
// sequence of ticks that were started by events, close together. A single event
// is no storm, and starts a tick at once.
type pace struct {
	storm int           // number of ticks of the storm before the last tick; 0: no storm
	idle  int           // number of last ticks in a row that wrote nothing
	last  time.Time     // when the last tick began that events had started
	gap   time.Duration // the gap after the last tick
}

// recordTick records a tick. It returns the gap: the minimum time from the start
// of this tick to the start of the next one, at most the period.
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

// gapAfter returns the gap after a tick of the given duration (took).
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
