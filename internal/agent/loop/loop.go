// Package loop is the loop: sense, decide, plan, act. It owns time and
// nothing else; what it decides is in policy, what it writes is in plan.
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

// A Host is a node that can be read and changed: the real one, a simulated
// one, or a recording.
type Host interface {
	// Snapshot reads the node once. What could not be read is absent from
	// the snapshot; the error is for what makes the whole snapshot useless.
	Snapshot(context.Context) (node.Snapshot, error)
	// Apply performs one step.
	Apply(context.Context, plan.Step) error
}

// A Batcher is a Host that performs several steps for less than it performs them
// one after another.
type Batcher interface {
	// ApplyAll performs the first of some steps, and as many more as go
	// together, and returns an error, or nil, for each that it performed.
	ApplyAll(context.Context, []plan.Step) []error
}

// A Guard is a Host that has more to do between two snapshots, which write
// nothing, than single steps: what must be faster than a tick, by rules that do
// not change, and signs that the agent lives.
type Guard interface {
	Guard() error
}

// An Agent keeps one node as the configuration wants it.
type Agent struct {
	Host   Host
	Config policy.Config
	// MaxSteps bounds the writes of one tick; 0 means no bound.
	MaxSteps int
	// Period is how often Run turns the loop when nothing happens.
	Period time.Duration
	// DryRun plans and writes nothing.
	DryRun bool
	// Spent returns the CPU time that this process has used up to now, so that
	// the ticks of a node with thousands of cgroups can be further apart than
	// Period; nil: they never are.
	Spent func() time.Duration

	state     policy.State
	watermark price.Watermark
	pause     time.Duration
}

// Pause returns the time from the begin of a tick to that of the next, if no
// event comes: Period, or more on a node whose ticks cost much.
func (a *Agent) Pause() time.Duration { return max(a.pause, a.Period) }

// Step turns the loop once. A failed step does not stop the others: it is
// reported, and the next snapshot tells the truth.
func (a *Agent) Step(ctx context.Context) (tick.Tick, error) { return a.tickOnce(ctx, nil) }

// tickOnce makes a tick. events are the reasons why it comes before its period is
// over; empty: the period is over.
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
	t.Batch, t.Selection, t.Missed = a.state.Batch.Offer, a.state.Selector.Status, a.state.Missed()
	t.Held, t.Misfits = a.state.Held(), a.state.Misfits.Found()
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

// charge adds up what the owner's threshold of CPU suppress costs. No decision
// depends on it, so it is no part of the state of the policies.
func (a *Agent) charge(s node.Snapshot) price.Watermark {
	c := a.Config.Suppress
	if !c.Enable {
		return price.Watermark{}
	}
	return a.watermark.Follow(price.Tick{
		Percent: c.ThresholdPercent, BackedOff: a.state.CPUBackOff.Permille > 0,
		CPUs: a.lendable(s), Layout: facts.LayoutOf(s), Use: a.state.Use,
	}, s)
}

// lendable returns the CPUs of the capacity that BE may use: those that no
// service keeps for itself, and that isolation does not leave empty beside one.
func (a *Agent) lendable(s node.Snapshot) unit.CPUSet {
	pool := a.Config.Pool.On(s)
	free := hold.PlacesOf(pool, a.state.Use, s, pool.Counted(s), a.state.Pins).Free
	if apart := free.Minus(unit.CPUSetOf(a.state.Selector.LS.Siblings(s.Topology)...)); !apart.Empty() {
		return apart
	}
	return free
}

// perform performs steps, and returns an error, or nil, for each.
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

// Run turns the loop every Pause, and at once when wake says that something
// happened, until ctx ends. Events that come during a tick or in the gap after
// it are those of the next one, but an operator's word ends the gap; and one
// that comes alone and says that work waits is looked at again soon. It hands
// each tick to observe and returns ctx's error. A nil wake never fires; who
// sends must stop with ctx.
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
		gap := pace.ticked(t.Begun, time.Since(t.Begun), a.Pause(), len(t.Done) > 0, slices.ContainsFunc(t.Events, woke))
		if pace.storm == 0 {
			waiting = again(t.Events)
		}
		rest := time.NewTimer(time.Until(t.Begun.Add(gap)))
		for resting := true; resting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-wake:
				waiting = tick.Join(waiting, e)
				resting = !atOnce(e)
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

// again returns the events of a tick that the next should look at too: the use
// since the tick before was that of the time before the event, and the use
// since this tick will be that of the moment.
func again(events []tick.Event) []tick.Event {
	var same []tick.Event
	for _, e := range events {
		if !e.Again && waits(e) {
			e.More, e.Again = 0, true
			same = append(same, e)
		}
	}
	return same
}

// atOnce reports whether an event has its tick in a storm, too: an operator
// waits for the answer, or best-effort work has less isolation until then.
// Neither can be a storm by itself.
func atOnce(e tick.Event) bool { return e.Kind == tick.EventPin || e.Kind == tick.EventHandover }

// woke reports whether an event, or one that is counted in it, had no tick yet.
func woke(e tick.Event) bool { return !e.Again || e.More > 0 }

// waits reports whether an event says that work waits, and hurts whether that
// is work of its own, and not the node as a whole.
func waits(e tick.Event) bool       { return e.Kind == tick.EventDelay || e.Kind == tick.EventPressure }
func sloViolated(e tick.Event) bool { return waits(e) && e.Workload != "" }

// drain takes what is there to be taken.
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

// State is what the policies remember, and Resume hands it to the agent that
// goes on: a restart then decides as if there had been none.
func (a *Agent) State() policy.State { return a.state }

// Resume continues from the State of an earlier agent.
func (a *Agent) Resume(st policy.State) { a.state = st }
