package reread

import (
	"testing"
	"time"
)

// TestEveryItemIsReadWithinItsTime checks that each item is read within its
// time, but not more often than necessary. The number of items and the times of
// the calls are random.
func TestEveryItemIsReadWithinItsTime(t *testing.T) {
	const within = 10 * time.Second
	for _, every := range []time.Duration{20 * time.Millisecond, 330 * time.Millisecond, time.Second, 40 * time.Second} {
		for _, n := range []int{0, 1, 3, 101, 1001} {
			var c Cycle
			at := time.Unix(0, 0)
			seen := make([]time.Time, n)
			for i := range seen {
				seen[i] = at
			}
			reads := 0
			for at.Sub(time.Unix(0, 0)) < 4*within {
				for i := range c.Due(at, n, within) {
					seen[i] = at
					reads++
				}
				at = at.Add(every)
			}
			for i, last := range seen {
				if age := at.Sub(last); age > within+2*every {
					t.Errorf("%d items, asked each %v: %d was last seen %v ago", n, every, i, age)
				}
			}
			if reads > 4*n {
				t.Errorf("%d items, asked each %v: %d reads in four times the time", n, every, reads)
			}
		}
	}
}

func TestACycleThatIsLeftEarlyGoesOn(t *testing.T) {
	var c Cycle
	for range c.Due(time.Unix(0, 0), 3, time.Second) {
		t.Fatal("a read before any time has passed")
	}
	for i := range c.Due(time.Unix(1, 0), 3, time.Second) {
		if i != 0 {
			t.Errorf("the first item read is %d", i)
		}
		break
	}
	for i := range c.Due(time.Unix(1, 0), 3, time.Second) {
		if i != 1 {
			t.Errorf("the second item read is %d", i)
		}
		break
	}
}

func TestManyValuesAreReadLessOften(t *testing.T) {
	for n, want := range map[int]time.Duration{0: Changed, 100: Changed, 1000: Changed, 5000: 25 * time.Second, 50_000: 250 * time.Second} {
		if got := Slower(Changed, n); got != want {
			t.Errorf("%d values are read within %v, want %v", n, got, want)
		}
		var c Cycle
		reads := 0
		for s := range 100 {
			for range c.Due(time.Unix(int64(s), 0), n, Slower(Changed, n)) {
				reads++
			}
		}
		if reads > 100*MostPerSecond {
			t.Errorf("of %d values, %d are read in 100 s", n, reads)
		}
	}
}
