// Package loop runs the loop of an agent: sense, decide, plan, act. The package
// itself decides only the time at which a tick starts. Package policy decides
// the values, and package plan decides the order of the writes.
package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/hold"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/price"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Host is a node whose knobs can be read and changed. It may be the real
// node, a simulated one, or a recording.
type Host interface {
	// Snapshot reads the node once. A value that could not be read is absent
	// from the snapshot. It returns an error only if the whole snapshot is
	// useless.
	Snapshot(context.Context) (node.Snapshot, error)
	// Apply performs one step: it writes one knob.
	Apply(context.Context, plan.Step) error
}

// A Batcher is a Host that can perform several steps at once. This costs less
// than performing them one by one.
type Batcher interface {
	// ApplyAll performs the first steps: at least one, and as many as can be
	// performed at once. For each step that it performed, it returns an error,
	// or nil.
	ApplyAll(context.Context, []plan.Step) []error
}

// A Guard is a Host that also acts between two ticks. By fixed rules, it does
// what must be faster than a tick. It also shows that the agent is alive.
type Guard interface {
	Guard() error
}

// An Agent keeps the knobs of one node at the values that the policies want.
type Agent struct {
	Host   Host
	Config policy.Config
	// MaxSteps is the maximum number of writes in one tick; 0: no maximum.
	MaxSteps int
	// Period is the time between two ticks if no event starts one earlier.
	Period time.Duration
	// DryRun makes the agent plan but write nothing.
	DryRun bool
	// Spent returns how much CPU time this process has used. On a node with
	// thousands of cgroups, the agent uses it to make ticks rarer than Period
	// says. If Spent is nil, ticks are never rarer.
	Spent func() time.Duration

	state     policy.State
	watermark price.Watermark
	pause     time.Duration
}

// Pause returns the time from the start of a tick to the start of the next, if
// no event comes. Usually this is Period. On a node whose ticks are expensive,
// it is longer.
func (a *Agent) Pause() time.Duration { return max(a.pause, a.Period) }

// Step makes one tick. A failed step does not stop the others. The tick reports
// the failure, and the next snapshot shows the true value.
func (a *Agent) Step(ctx context.Context) (tick.Tick, error) { return a.tickOnce(ctx, nil) }

// tickOnce makes one tick. events are the reasons why the tick starts before
// its period is over. There are none if the period is over.
func (a *Agent) tickOnce(ctx context.Context, events []tick.Event) (tick.Tick, error) {
	start := time.Now()
	t := tick.Tick{Begun: start, Events: events}
	s, err := a.Host.Snapshot(ctx)
	if err != nil {
		return t, fmt.Errorf("read the node: %w", err)
	}
	s.SLOViolated = slices.ContainsFunc(events, sloViolated)
	t.Snapshot, t.Sense = s, time.Since(start)

	start = time.Now()
	a.state, t.Wants = policy.Decide(a.Config, a.state, s)
	t.Batch, t.Selection, t.Missed = a.state.Batch.Offer, a.state.Selector.Status, a.state.Violations()
	t.Held, t.Misfits = a.state.HeldCPUs(), a.state.Misfits.Misfits()
	t.Slices = a.state.Seats.Slices(a.Config.Seats)
	t.Trials = a.state.Selector.Trials.Shown()
	a.watermark = a.charge(s)
	t.Watermark = a.watermark
	steps := plan.Bound(plan.Diff(s.Knobs, t.Wants), a.MaxSteps)
	t.Decide = time.Since(start)

	start = time.Now()
	var errs []error
	for i, err := range a.perform(ctx, steps) {
		t.Done = append(t.Done, tick.Outcome{Step: steps[i], Err: err})
		if err != nil {
			errs = append(errs, err)
		}
	}
	if g, guards := a.Host.(Guard); guards && !a.DryRun {
		errs = append(errs, g.Guard())
	}
	t.Act = time.Since(start)
	return t, errors.Join(errs...)
}

// charge adds up how much CPU BE loses because of the owner's threshold of CPU
// suppress. No decision depends on it, so it is not in the state of the
// policies.
func (a *Agent) charge(s node.Snapshot) price.Watermark {
	c := a.Config.Suppress
	if !c.Enable {
		return price.Watermark{}
	}
	return a.watermark.Follow(price.Tick{
		Percent: c.ThresholdPercent, BackedOff: a.state.CPUBackOff.Permille > 0,
		CPUs: a.lendableCPUs(s), Layout: facts.LayoutOf(s), Use: a.state.Use,
	}, s)
}

// lendableCPUs returns the CPUs of the capacity that BE may use. It omits CPUs
// that a service owns, and CPUs beside a service that the isolation keeps idle.
func (a *Agent) lendableCPUs(s node.Snapshot) unit.CPUSet {
	pool := a.Config.Pool.WithIsolated(s)
	free := hold.PlacesOf(pool, a.state.Use, s, pool.Counted(s), a.state.Pins).Free
	if apart := free.Minus(unit.CPUSetOf(a.state.Selector.LS.Siblings(s.Topology)...)); !apart.Empty() {
		return apart
	}
	return free
}

// perform performs the steps. For each step it returns an error, or nil.
func (a *Agent) perform(ctx context.Context, steps []plan.Step) []error {
	if b, batches := a.Host.(Batcher); batches && !a.DryRun {
		errs := make([]error, 0, len(steps))
		for len(errs) < len(steps) {
			errs = append(errs, b.ApplyAll(ctx, steps[len(errs):])...)
		}
		return errs
	}
	errs := make([]error, len(steps))
	for i, st := range steps {
		if !a.DryRun {
			errs[i] = a.Host.Apply(ctx, st)
		}
	}
	return errs
}

func (a *Agent) spent() time.Duration {
	if a.Spent == nil {
		return 0
	}
	return a.Spent()
}

// Run makes ticks until ctx ends, and returns ctx's error. A tick starts every
// Pause, and at once when the channel wake delivers an event. Run passes each
// tick to a function (observe).
//
// Events that come during a tick, or in the gap after it, wait for the next
// tick. The request of an operator ends the gap. If a single event says that
// work waits, a second tick follows soon, because the rates that the first tick
// had are too old.
//
// A nil channel never delivers an event. The goroutine that sends events must
// stop when ctx ends.
func (a *Agent) Run(ctx context.Context, wake <-chan tick.Event, observe func(tick.Tick, error)) error {
	due := time.NewTimer(0)
	defer due.Stop()
	var waiting []tick.Event
	var pace pace
	var cost time.Duration // of the last tick, in CPU time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due.C:
		case e := <-wake:
			waiting = tick.Join(waiting, e)
		}
		waiting = drain(wake, waiting)
		spent := a.spent()
		t, err := a.tickOnce(ctx, waiting)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.pause = pauseAfter(cost, len(t.Done) > 0)
		observe(t, err)
		cost, waiting = a.spent()-spent, nil
		gap := pace.recordTick(t.Begun, time.Since(t.Begun), a.Pause(), len(t.Done) > 0, slices.ContainsFunc(t.Events, isNew))
		if pace.storm == 0 {
			waiting = repeatEvents(t.Events)
		}
		rest := time.NewTimer(time.Until(t.Begun.Add(gap)))
		for resting := true; resting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-wake:
				waiting = tick.Join(waiting, e)
				resting = !startsAtOnce(e)
			case <-rest.C:
				resting = false
			}
		}
		rest.Stop()
		wait := time.Until(t.Begun.Add(a.Pause()))
		if len(waiting) > 0 {
			wait = 0
		}
		due.Reset(max(wait, 0))
	}
}

// repeatEvents returns the events of a tick that the next tick must
// handle again. The rates of this tick are mostly about the time before the
// event. The rates of the next tick will be about the time after it.
func repeatEvents(events []tick.Event) []tick.Event {
	var same []tick.Event
	for _, e := range events {
		if !e.Again && waits(e) {
			e.More, e.Again = 0, true
			same = append(same, e)
		}
	}
	return same
}

// startsAtOnce reports whether an event starts a tick at once, even during a
// storm of events. This is so if an operator waits for the answer, or if
// best-effort work has less isolation until the tick. Such events are too rare
// to be a storm.
func startsAtOnce(e tick.Event) bool { return e.Kind == tick.EventPin || e.Kind == tick.EventHandover }

// isNew reports whether an event is new, or counts other events that are new.
func isNew(e tick.Event) bool { return !e.Again || e.More > 0 }

// waits reports whether an event says that work waits. sloViolated reports
// whether such an event is about one service, and not about the node as a
// whole.
func waits(e tick.Event) bool       { return e.Kind == tick.EventDelay || e.Kind == tick.EventPressure }
func sloViolated(e tick.Event) bool { return waits(e) && e.Workload != "" }

// drain takes all events that wake holds now, and appends them to the list
// waiting.
func drain(wake <-chan tick.Event, waiting []tick.Event) []tick.Event {
	for range cap(wake) {
		select {
		case e := <-wake:
			waiting = tick.Join(waiting, e)
		default:
			return waiting
		}
	}
	return waiting
}

// State returns what the policies remember. If another agent continues with it
// by Resume, that agent decides as if there had been no restart.
func (a *Agent) State() policy.State { return a.state }

// Resume continues from the State of another agent.
func (a *Agent) Resume(st policy.State) { a.state = st }
