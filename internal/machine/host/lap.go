package host

import (
	"iter"
	"time"
)

// A lap goes round things that are read in turn, each once within some time.
type lap struct {
	at   time.Time     // of the last call
	owed time.Duration // since then and before, not yet spent on reading
	next int
}

// due lists whose turn has come at the given time, of n things that are each
// to be read within some time. The first call begins the lap: nobody's has.
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
