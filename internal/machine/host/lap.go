package host

import (
	"iter"
	"time"
)

// A lap cycles through items so that each is read once within some time.
type lap struct {
	at   time.Time     // of the last call
	owed time.Duration // time since the last call and before that was not yet used for reading
	next int
}

// due returns the items to read at the given time, out of n that are each to be
// read within some time. The first call starts the lap and returns none.
func (l *lap) due(at time.Time, n int, within time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		if !l.at.IsZero() {
			l.owed = min(l.owed+max(at.Sub(l.at), 0), within)
		}
		l.at = at
		if n == 0 {
			return
		}
		for each := max(within/time.Duration(n), 1); l.owed >= each; {
			l.owed -= each
			i := l.next % n
			l.next = (i + 1) % n
			if !yield(i) {
				return
			}
		}
	}
}
