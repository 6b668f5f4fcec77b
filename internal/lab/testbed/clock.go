package testbed

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// MonotonicNow returns the time of CLOCK_MONOTONIC.
func MonotonicNow() time.Duration { return clockNow(unix.CLOCK_MONOTONIC) }

// ThreadTime returns the CPU time of the calling thread.
func ThreadTime() time.Duration { return clockNow(unix.CLOCK_THREAD_CPUTIME_ID) }

// Pause waits for d, or until ctx ends. Then it returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func clockNow(clock int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t) // cannot fail: the clocks exist and t is valid
	return time.Duration(t.Nano())
}
