// Package reread says which of many values to read again now, so that each is
// read once within a given time and no reader reads all of them at once.
package reread

import (
	"iter"
	"time"
)

const (
	// Changed is the largest age of a cached value that Tenon has changed.
	// Within this time Tenon sees and corrects another component's write.
	Changed = 5 * time.Second
	// Unchanged is the same for the other cached values, of which there are many
	// more.
	Unchanged = 15 * time.Second
)

// MostPerSecond is the largest number of values that a cycle with Slower reads in
// a second: of a node with thousands of cgroups, each value is read less often,
// so that the cost does not grow with the node.
const MostPerSecond = 200

// Slower returns the time within which n values are read again: within, or more
// if there are too many.
func Slower(within time.Duration, n int) time.Duration {
	return max(within, time.Duration(n)*time.Second/MostPerSecond)
}

// A Cycle goes through items again and again, so that each is read once within
// some time. The zero Cycle has not started.
type Cycle struct {
	at   time.Time     // of the last call
	owed time.Duration // time since the last call and before that was not yet used for reading
	next int
}

// Due returns the items to read at the given time, out of n that are each to be
// read within some time. The first call starts the cycle and returns none.
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
