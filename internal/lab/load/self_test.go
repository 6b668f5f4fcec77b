package load

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
)

func TestAServiceThatDrivesItselfMeasuresFromTheDueTime(t *testing.T) {
	r, release, err := Self{Threads: 2, Memory: 1 << 20}.Run(t.Context(), Config{Rate: 400, Arrival: Constant, Warmup: 100 * time.Millisecond, Duration: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	release()
	if r.Scheduled < 158 || r.Scheduled > 162 || r.Completed != r.Scheduled || r.Latency.P50 <= 0 || len(r.Void) > 0 || r.Loop != "self" {
		t.Errorf("%+v, P50 %v µs, void %q", r.Counts, r.Latency.P50, r.Void)
	}
	// The load is more than a CPU can serve. The queue must show in the
	// latencies, and the requests that did not begin must make the run void.
	r, release, err = Self{Threads: 1, Memory: 1 << 20}.Run(t.Context(), Config{Rate: 1e6, Duration: 200 * time.Millisecond, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	release()
	if r.Errors.Unsent == 0 || len(r.Void) == 0 || r.Latency.P50 < 10e3 {
		t.Errorf("overloaded: %+v, P50 %v µs, void %q", r.Counts, r.Latency.P50, r.Void)
	}
}

func TestFaultsOfAServiceThatDrivesItself(t *testing.T) {
	good := Config{Rate: 100, Duration: time.Second}
	for _, s := range []Self{{Threads: 0, Memory: 1 << 20}, {Threads: 5000, Memory: 1 << 20}, {Threads: 1, Memory: 1}} {
		if _, _, err := s.Run(t.Context(), good); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := (Self{Threads: 1, Memory: 1 << 20}).Run(ctx, Config{Rate: 10, Duration: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestTheThreadsOutliveTheResult checks that the threads that make the requests
// do not end before they are released. Until then their counters can be read.
func TestTheThreadsOutliveTheResult(t *testing.T) {
	threads := func() []int {
		all, err := proc.Default().Threads(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	_, release, err := Self{Threads: 3, Memory: 1 << 20}.Run(t.Context(), Config{Rate: 100, Duration: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	before := threads()
	release()
	release() // the second time does nothing
	// Only the threads that made the requests end. The other threads of the
	// process stay.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		left := threads()
		if gone := len(slices.DeleteFunc(slices.Clone(before), func(tid int) bool { return slices.Contains(left, tid) })); gone >= 3 {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d threads ended after the release, want 3 at least", gone)
		}
	}
}
