package loop

import "time"

const (
	// minGap is the minimum time from the start of a tick to the start of the
	// next.
	minGap = 20 * time.Millisecond
	// During a storm of events, the gap grows in steps up to maxGap. So the
	// agent still answers within 100 ms.
	maxGap = 80 * time.Millisecond
	// After idleTicks ticks of a storm without a write, the gap grows to
	// idleGap: ticks do not end the cause of these events.
	idleGap   = 320 * time.Millisecond
	idleTicks = 8
	// restShare bounds the cost of a storm on a node of any size. After each
	// tick of a storm, the loop rests for restShare times the length of the
	// tick.
	restShare = 20
	// startGap is the longest gap while a container waits for its limits. It waits
	// 0.9 s at most (cluster/containerstart), and the tick itself takes a part of that.
	startGap = 400 * time.Millisecond
	// pauseShare bounds the cost of ticks on a large node without events. The
	// time between two ticks is pauseShare times the CPU time of a tick. It is
	// larger than restShare, because the whole process may use 5 % of a CPU,
	// and its other parts also need CPU.
	pauseShare = 25
	// longestPause is the longest time between two ticks on a large node
	// without events.
	longestPause = 10 * time.Second
)

// pauseAfter returns the minimum time between two ticks, so that ticks use at
// most 1/pauseShare of a CPU. cost is the CPU time of a tick. After a tick that
// wrote, pauseAfter returns 0: the next tick must not come later than usual,
// because new work may not have its limits yet.
func pauseAfter(cost time.Duration, wrote bool) time.Duration {
	if wrote {
		return 0
	}
	return min(pauseShare*cost, longestPause)
}

// A pace limits the CPU time that a storm of events can cost. A storm is a
// sequence of ticks that events have started, close together. A single event is
// no storm, and starts a tick at once.
type pace struct {
	storm int           // number of ticks of the storm before the last tick; 0: no storm
	idle  int           // number of last ticks in a row that wrote nothing
	last  time.Time     // when the last tick began that events had started
	gap   time.Duration // the gap after the last tick
}

// recordTick records a tick. It returns the gap: the minimum time from the start
// of this tick to the start of the next one. The gap is at most the period.
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

// gapAfter returns the gap after a tick that took the time took.
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
