package host

import (
	"testing"
	"time"
)

// TestEveryTurnComesWithinItsTime: however often the lap is asked, and however
// many things there are, each has its turn within the time, and no more often
// than it must.
func TestEveryTurnComesWithinItsTime(t *testing.T) {
	const within = 10 * time.Second
	for _, every := range []time.Duration{20 * time.Millisecond, 330 * time.Millisecond, time.Second, 40 * time.Second} {
		for _, n := range []int{0, 1, 3, 101, 1001} {
			var l lap
			at := time.Unix(0, 0)
			seen := make([]time.Time, n)
			for i := range seen {
				seen[i] = at
			}
			turns := 0
			for at.Sub(time.Unix(0, 0)) < 4*within {
				for i := range l.due(at, n, within) {
					seen[i] = at
					turns++
				}
				at = at.Add(every)
			}
			for i, last := range seen {
				if age := at.Sub(last); age > within+2*every {
					t.Errorf("%d things, asked each %v: %d was last seen %v ago", n, every, i, age)
				}
			}
			if turns > 4*n {
				t.Errorf("%d things, asked each %v: %d turns in four times the time", n, every, turns)
			}
		}
	}
}

func TestALapThatIsLeftEarlyGoesOn(t *testing.T) {
	var l lap
	for range l.due(time.Unix(0, 0), 3, time.Second) {
		t.Fatal("a turn before any time has passed")
	}
	for i := range l.due(time.Unix(1, 0), 3, time.Second) {
		if i != 0 {
			t.Errorf("the first turn is %d's", i)
		}
		break
	}
	for i := range l.due(time.Unix(1, 0), 3, time.Second) {
		if i != 1 {
			t.Errorf("the second turn is %d's", i)
		}
		break
	}
}
