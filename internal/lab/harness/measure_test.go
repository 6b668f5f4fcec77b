package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// noCounter is a Counter without readings.
type noCounter struct{}

func (noCounter) Run(ctx context.Context)     { <-ctx.Done() }
func (noCounter) Collect() ([]Reading, error) { return nil, nil }
func (noCounter) Capacity() int               { return 1 }
func (noCounter) HasPSI() bool                { return false }

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

// TestTheClientsReasonsHaveACause checks that a failure of the service stays one
// beside the hints about connections, and that the client outweighs it.
func TestTheClientsReasonsHaveACause(t *testing.T) {
	hints := []string{"Connections fail when the client machine runs out of local ports"}
	for name, c := range map[string]struct {
		m    Measurement
		want report.Cause
	}{
		"answered":          {Measurement{Client: &load.Result{}}, report.NotVoid},
		"the service fails": {Measurement{Client: &load.Result{Void: []string{"connect errors: 9"}, Hints: hints}}, report.Failed},
		"both":              {Measurement{Client: &load.Result{Void: []string{"timeout errors: 9", "the client was busy"}, Disturbed: true}}, report.Disturbed},
		"hints alone":       {Measurement{Client: &load.Result{Hints: hints}}, report.NotItsMode},
		"wrk: no answer":    {Measurement{Wrk: &wrk.Result{Void: []string{"no request was answered"}}}, report.Failed},
		"wrk: connections":  {Measurement{Wrk: &wrk.Result{Void: []string{"socket errors: connect 3"}, SocketErrors: wrk.SocketErrors{Connect: 3}}}, report.NotItsMode},
	} {
		c.m.Used.Wall = 1
		var r report.Run
		Fill(&r, c.m)
		if got := r.VoidCause(); got != c.want || r.Cause != c.want {
			t.Errorf("%s: the cause is %q and %q, want %q", name, r.Cause, got, c.want)
		}
	}
}

// TestDisturbancesHaveACause checks the cause of each disturbance.
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
		if got := c.run.Cause; got != report.Disturbed {
			t.Errorf("%s: the cause of %q is %q, want %q", name, c.run.Void, got, report.Disturbed)
		}
	}
}

// TestReadingsFarFromTheMeasuredPartAreNamed uses the readings of a run of 2 s. The
// counters at its begin are interpolated, so that they contain a part of the
// warm-up if no reading lies near it.
func TestReadingsFarFromTheMeasuredPartAreNamed(t *testing.T) {
	from := time.Unix(100, 0)
	for _, c := range []struct {
		at     []float64 // seconds since the begin of the measured part
		warned bool
	}{
		{[]float64{-0.5, 1.5, 2.1}, true},
		{[]float64{-0.1, 1, 2.5}, true},
		{[]float64{-0.1, 1, 2.1}, false},
		{nil, false},
	} {
		m := Measurement{From: from, To: from.Add(2 * time.Second), Used: Spent{capacity: 1}}
		for _, s := range c.at {
			m.Readings = append(m.Readings, Reading{At: from.Add(time.Duration(s * float64(time.Second)))})
		}
		r := report.Run{Length: 2 * time.Second}
		m.Judge(&r, 1, 2*time.Second)
		warned := len(r.Warnings) == 1 && strings.Contains(r.Warnings[0], "may contain a part of the warm-up")
		if warned != c.warned || len(r.Void) > 0 {
			t.Errorf("readings at %v s: warnings %q, void %q", c.at, r.Warnings, r.Void)
		}
	}
}
