package testbed

import (
	"time"

	"golang.org/x/sys/unix"
)

// MonotonicNow returns the time of CLOCK_MONOTONIC.
func MonotonicNow() time.Duration { return clockNow(unix.CLOCK_MONOTONIC) }

// ThreadTime returns the CPU time of the calling thread.
func ThreadTime() time.Duration { return clockNow(unix.CLOCK_THREAD_CPUTIME_ID) }

func clockNow(clock int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t) // cannot fail: the clocks exist and t is valid
	return time.Duration(t.Nano())
}
