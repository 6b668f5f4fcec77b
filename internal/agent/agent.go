// Package agent is the loop: sense, decide, plan, act. It owns time and
// nothing else; what it decides is in policy, what it writes is in plan.
package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/policy"
	"tenon.sh/tenon/internal/tick"
)

// A Host is a node that can be read and changed: the real one, a simulated
// one, or a recording.
type Host interface {
	// Snapshot reads the node once. What could not be read is absent from
	// the snapshot; the error is for what makes the whole snapshot useless.
	Snapshot(context.Context) (node.Snapshot, error)
	// Apply performs one step.
	Apply(context.Context, plan.Step) error
}

// An Agent keeps one node as the configuration wants it.
type Agent struct {
	Host   Host
	Config policy.Config
	// MaxSteps bounds the writes of one turn; 0 means no bound.
	MaxSteps int
	// DryRun plans and writes nothing.
	DryRun bool

	state policy.State
}

// Step turns the loop once. A failed step does not stop the others: it is
// reported, and the next snapshot tells the truth.
func (a *Agent) Step(ctx context.Context) (tick.Tick, error) {
	var t tick.Tick
	start := time.Now()
	s, err := a.Host.Snapshot(ctx)
	if err != nil {
		return t, fmt.Errorf("read the node: %w", err)
	}
	t.Snapshot, t.Sense = s, time.Since(start)

	start = time.Now()
	a.state, t.Wants = policy.Decide(a.Config, a.state, s)
	steps := plan.Bound(plan.Diff(s.Knobs, t.Wants), a.MaxSteps)
	t.Decide = time.Since(start)

	start = time.Now()
	var errs []error
	for _, st := range steps {
		o := tick.Outcome{Step: st}
		if !a.DryRun {
			if o.Err = a.Host.Apply(ctx, st); o.Err != nil {
				errs = append(errs, o.Err)
			}
		}
		t.Done = append(t.Done, o)
	}
	t.Act = time.Since(start)
	return t, errors.Join(errs...)
}

// Run turns the loop every period until ctx ends, and hands each turn to
// observe. It returns ctx's error.
func (a *Agent) Run(ctx context.Context, period time.Duration, observe func(tick.Tick, error)) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		t, err := a.Step(ctx)
		observe(t, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
