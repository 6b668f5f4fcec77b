// Package reread selects which of many cached values must be read again now.
// Each value is read once within a given time, and the reads are spread evenly.
package reread

import (
	"iter"
	"time"
)

const (
	// Changed is the maximum age of a cached value that Tenon has changed.
	// Within this time, Tenon notices if another component overwrites it.
	Changed = 5 * time.Second
	// Unchanged is the maximum age of the other cached values. It is longer,
	// because there are many more of them.
	Unchanged = 15 * time.Second
)

// MostPerSecond is the maximum number of values per second for a cycle whose
// period comes from Slower. On a node with thousands of cgroups, each value is
// then read less often, so that the cost is bounded.
const MostPerSecond = 200

// Slower returns the period in which n values are read again: the argument
// within, or a longer time if the reads would exceed MostPerSecond.
func Slower(within time.Duration, n int) time.Duration {
	return max(within, time.Duration(n)*time.Second/MostPerSecond)
}

// A Cycle selects items in turn, so that each is selected once in a period. The
// zero Cycle has not started.
type Cycle struct {
	at   time.Time     // time of the last call of Due
	owed time.Duration // time that has passed but was not spent on items yet
	next int
}

// Due returns the indices of those of n items that must be read at the time at.
// Each item is due once in the period within. The first call returns none.
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
