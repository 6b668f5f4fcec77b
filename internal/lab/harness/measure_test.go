package harness

import (
	"context"
	"errors"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// noCounter is a Counter without readings.
type noCounter struct{}

func (noCounter) Run(ctx context.Context)     { <-ctx.Done() }
func (noCounter) Collect() ([]Reading, error) { return nil, nil }
func (noCounter) Capacity() int               { return 1 }

// TestAnInterruptedRunIsCanceled ends the context with a cause, as a signal does.
// The error must be context.Canceled, because the lab knows an interruption by it.
func TestAnInterruptedRunIsCanceled(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	_, err := Watch(ctx, noCounter{}, &testbed.Process{}, func(ctx context.Context) (Measurement, error) {
		interrupt(errors.New("a signal"))
		<-ctx.Done()
		return Measurement{}, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

// TestDisturbancesHaveACause checks that the analysis knows each disturbance of
// a run by the text of its reason.
func TestDisturbancesHaveACause(t *testing.T) {
	for name, c := range map[string]struct {
		run report.Run
		m   Measurement
	}{
		"steal":        {report.Run{Length: time.Second, StealRatio: 0.02}, Measurement{Used: Spent{capacity: 1}}},
		"foreign work": {report.Run{Length: time.Second}, Measurement{Used: Spent{capacity: 1, foreign: 0.3}}},
		"too short":    {report.Run{Length: time.Second / 3}, Measurement{Used: Spent{capacity: 1}}},
	} {
		c.m.Judge(&c.run, 1, time.Second)
		if got := report.CauseOf(c.run.Void); got != report.Disturbed {
			t.Errorf("%s: the cause of %q is %q, want %q", name, c.run.Void, got, report.Disturbed)
		}
	}
}
