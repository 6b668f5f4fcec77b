package harness

import (
	"fmt"
	"time"
)

// An eta estimates the remaining time from the lengths of past runs.
type eta struct {
	begun time.Time
	done  int // number of runs
}

// remaining estimates how long n more runs take. It uses the mean length of the
// past runs. Before any run has ended, it uses first as the length of a run.
func (e eta) remaining(n int, first time.Duration) time.Duration {
	if e.done > 0 {
		first = time.Since(e.begun) / time.Duration(e.done)
	}
	return (time.Duration(n) * first).Round(time.Second)
}

// clock prints d as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
