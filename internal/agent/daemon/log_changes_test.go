package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/model/node"
)

// loggedText returns a changeLogger, and a function that returns the text of its
// log and clears it.
func loggedText() (*changeLogger, func() string) {
	var b bytes.Buffer
	options := &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	return &changeLogger{log: slog.New(slog.NewTextHandler(&b, options))}, func() string {
		defer b.Reset()
		return b.String()
	}
}

func tickOnce(err error) tick.Tick {
	step := plan.Step{Knob: node.Knob{Cgroup: "be", File: node.FileCPUMax}, To: node.Limit(500), Owner: plan.OwnerSuppress}
	return tick.Tick{Snapshot: node.Snapshot{At: time.Unix(1, 0)}, Done: []tick.Outcome{{Step: step, Err: err}}}
}

// TestALoadThatGoesOnIsNoFailure loads the scheduler, which takes several
// ticks. The log must have one line about the load, and must not call its end
// the end of a failure.
func TestALoadThatGoesOnIsNoFailure(t *testing.T) {
	r, take := loggedText()
	err := fmt.Errorf("apply: %w", bescheduler.ErrLoading)
	for range 3 {
		r.tick(tickOnce(err), err)
	}
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO") || !strings.Contains(got, "being loaded") {
		t.Errorf("while it is loaded: %q", got)
	}
	r.tick(tickOnce(nil), nil)
	if got := take(); got != "" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestAKnobThatKeepsFailingIsLoggedOnce(t *testing.T) {
	r, take := loggedText()
	refused := errors.New("write cpu.max: permission denied")
	r.tick(tickOnce(refused), refused)
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cgroup=be") || !strings.Contains(got, "permission denied") {
		t.Errorf("the first failure: %q", got)
	}
	for range 100 {
		r.tick(tickOnce(refused), refused)
	}
	if got := take(); got != "" {
		t.Errorf("the same failure again: %q", got)
	}
	r.tick(tickOnce(fmt.Errorf("apply 600: %w", refused)), refused)
	if got := take(); got != "" {
		t.Errorf("the same failure of another value: %q", got)
	}
	other := errors.New("write cpu.max: no such device")
	r.tick(tickOnce(other), other)
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "no such device") {
		t.Errorf("another failure: %q", got)
	}
	r.tick(tickOnce(nil), nil)
	if got := take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "has its value now") {
		t.Errorf("the end of it: %q", got)
	}
	r.tick(tickOnce(nil), nil)
	if got := take(); got != "" {
		t.Errorf("a good turn: %q", got)
	}
}

func TestANodeThatCannotBeReadIsLoggedOnce(t *testing.T) {
	r, take := loggedText()
	blind := errors.New("read the topology: input/output error")
	for range 3 {
		r.tick(tick.Tick{}, blind)
	}
	if got := take(); strings.Count(got, "\n") != 1 {
		t.Errorf("three blind turns: %q", got)
	}
	r.tick(tickOnce(nil), nil)
	if got := take(); !strings.Contains(got, "can be read again") {
		t.Errorf("the next good one: %q", got)
	}
}

func TestWorkloadsAndRemarksAreLoggedWhenTheyChange(t *testing.T) {
	r, take := loggedText()
	one := []node.Workload{{ID: "web", Rule: "web"}}
	two := append(one, node.Workload{ID: "job", Rule: "batch"})
	r.workloads(two, []string{"rule backup matches nothing"})
	if got := take(); !strings.Contains(got, "now=2 come=2 gone=0") || !strings.Contains(got, "backup matches nothing") {
		t.Errorf("at first: %q", got)
	}
	r.workloads(two, []string{"rule backup matches nothing"})
	if got := take(); got != "" {
		t.Errorf("without a change: %q", got)
	}
	r.workloads(one, nil)
	if got := take(); !strings.Contains(got, "now=1 come=0 gone=1") {
		t.Errorf("after one left: %q", got)
	}
}
