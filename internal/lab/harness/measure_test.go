package harness

import (
	"context"
	"errors"
	"testing"

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
