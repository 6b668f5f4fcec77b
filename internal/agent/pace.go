package agent

import "time"

const (
	// minGap is the least time from the begin of a turn to that of the next.
	minGap = 20 * time.Millisecond
	// maxGap is what a storm of events makes of it, in steps: what happens in
	// a storm is still answered within 100 ms.
	maxGap = 80 * time.Millisecond
	// idleGap is what becomes of it in a storm in which turn after turn finds
	// nothing to write, and idleTurns is how many of them it takes: what
	// raises such events is not for the loop to end.
	idleGap   = 320 * time.Millisecond
	idleTurns = 8
	// restShare bounds what the turns of a storm cost on a node of any size:
	// after each the loop rests for so many times its length.
	restShare = 20
)

// A pace keeps a storm of events from eating the CPU. An event that comes
// alone is answered at once.
type pace struct {
	storm int // turns in a row that began with events waiting
	idle  int // the last of them that wrote nothing
}

// turned takes note of a turn, and returns the least time from its begin to
// that of the next, which is never later than the period asks for.
func (p *pace) turned(took, period time.Duration, wrote bool) time.Duration {
	if p.storm == 0 {
		p.idle = 0
		return minGap
	}
	if p.idle++; wrote {
		p.idle = 0
	}
	gap := min(minGap<<min(p.storm, 8), maxGap)
	if p.idle >= idleTurns {
		gap = idleGap
	}
	return max(minGap, min(max(gap, took*(1+restShare)), period))
}

// rested notes whether events were waiting when the gap was over.
func (p *pace) rested(waiting bool) {
	if waiting {
		p.storm++
	} else {
		p.storm = 0
	}
}
