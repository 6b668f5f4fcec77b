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
	// Period is how often Run turns the loop when nothing happens.
	Period time.Duration
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

// minGap is the least time between two turns: events in a storm share a turn.
const minGap = 20 * time.Millisecond

// Run turns the loop every Period, and at once when wake says that something
// happened, until ctx ends. It hands each turn to observe and returns ctx's
// error. A nil wake never fires.
func (a *Agent) Run(ctx context.Context, wake <-chan struct{}, observe func(tick.Tick, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-wake:
		}
		begun := time.Now()
		t, err := a.Step(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		observe(t, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(begun.Add(minGap))):
		}
		timer.Reset(max(time.Until(begun.Add(a.Period)), 0))
	}
}

// State is what the policies remember, and Resume hands it to the agent that
// goes on: a restart then decides as if there had been none.
func (a *Agent) State() policy.State { return a.state }

// Resume continues from the State of an earlier agent.
func (a *Agent) Resume(st policy.State) { a.state = st }
