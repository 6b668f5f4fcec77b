package load

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestAServiceThatDrivesItselfMeasuresFromTheDueTime(t *testing.T) {
	r, err := Self{Threads: 2, Memory: 1 << 20}.Run(t.Context(), Config{Rate: 400, Arrival: Constant, Warmup: 100 * time.Millisecond, Duration: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Scheduled < 158 || r.Scheduled > 162 || r.Completed != r.Scheduled || r.Latency.P50 <= 0 || len(r.Void) > 0 || r.Loop != "self" {
		t.Errorf("%+v, P50 %v µs, void %q", r.Counts, r.Latency.P50, r.Void)
	}
	// More than a CPU can do: the queue shows in the latencies, and what was not
	// begun voids the run.
	r, err = Self{Threads: 1, Memory: 1 << 20}.Run(t.Context(), Config{Rate: 1e6, Duration: 200 * time.Millisecond, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors.Unsent == 0 || len(r.Void) == 0 || r.Latency.P50 < 10e3 {
		t.Errorf("overloaded: %+v, P50 %v µs, void %q", r.Counts, r.Latency.P50, r.Void)
	}
}

func TestFaultsOfAServiceThatDrivesItself(t *testing.T) {
	good := Config{Rate: 100, Duration: time.Second}
	for _, s := range []Self{{Threads: 0, Memory: 1 << 20}, {Threads: 5000, Memory: 1 << 20}, {Threads: 1, Memory: 1}} {
		if _, err := s.Run(t.Context(), good); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (Self{Threads: 1, Memory: 1 << 20}).Run(ctx, Config{Rate: 10, Duration: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
