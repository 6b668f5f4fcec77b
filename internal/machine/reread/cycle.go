// Package reread says which of many values must be read again now. Each value
// is read once within a given time. The reads are spread evenly over that time.
package reread

import (
	"iter"
	"time"
)

const (
	// Changed is the maximum age of a cached value that Tenon has changed.
	// Within this time Tenon notices and corrects a write of another component.
	Changed = 5 * time.Second
	// Unchanged is the maximum age of the other cached values. There are many
	// more of these.
	Unchanged = 15 * time.Second
)

// MostPerSecond is the maximum number of values that a cycle with Slower reads
// per second. On a node with thousands of cgroups each value is read less
// often, so that the cost does not grow with the node.
const MostPerSecond = 200

// Slower returns the time in which n values are read again. Usually this is the
// given time. If n is too large for MostPerSecond, it is longer.
func Slower(within time.Duration, n int) time.Duration {
	return max(within, time.Duration(n)*time.Second/MostPerSecond)
}

// A Cycle goes through items again and again, so that each is read once within
// a given time. The zero Cycle has not started.
type Cycle struct {
	at   time.Time     // of the last call
	owed time.Duration // time that has passed and that no reading has used yet
	next int
}

// Due returns which of n items must be read at a time (at). Each item is due
// once in a period (within). The first call starts the cycle, and returns none.
func (c *Cycle) Due(at time.Time, n int, within time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		if !c.at.IsZero() {
			c.owed = min(c.owed+max(at.Sub(c.at), 0), within)
		}
		c.at = at
		if n == 0 {
			return
		}
		for each := max(within/time.Duration(n), 1); c.owed >= each; {
			c.owed -= each
			i := c.next % n
			c.next = (i + 1) % n
			if !yield(i) {
				return
			}
		}
	}
}
