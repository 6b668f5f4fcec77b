// Package loop runs the loop of an agent: sense, decide, plan, act. The package
// itself decides only when a tick starts. Package policy decides the values of
// knobs, and package plan decides the order of the writes.
package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/suppresscost"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Host is a node whose knobs can be read and changed: the real node, a
// simulated node, or a recording.
type Host interface {
	// Snapshot reads the node once. A value that could not be read is absent from
	// the snapshot. Snapshot returns an error only if the whole snapshot is
	// useless.
	Snapshot(context.Context) (node.Snapshot, error)
	// Apply performs one step: it writes one knob.
	Apply(context.Context, plan.Step) error
}

// A Batcher is a Host that can perform several steps at once, which costs less
// than single steps.
type Batcher interface {
	// ApplyAll performs the first steps: at least one, and as many as it can
	// perform at once. It returns one error, or nil, for each performed step.
	ApplyAll(context.Context, []plan.Step) []error
}

// An Orderer is a Host that does not perform the steps of a tick in the order of
// the plan.
type Orderer interface {
	// Order returns the indexes of the steps in the order in which the agent
	// performs them.
	Order([]plan.Step) []int
}

// A Guard is a Host that must also act after each tick: it shows that the agent
// is alive, and does small repairs outside the plan.
type Guard interface {
	Guard() error
}

// A Reclaimer is a Host that can reclaim memory beside the loop.
type Reclaimer interface {
	// Reclaim takes the orders of a tick in place of those that have not begun, and
	// returns at once. An order that goes on ends if its workload may not run it. Later
	// snapshots show what became of them (node.Usage.Reclaim).
	Reclaim(orders []node.ReclaimOrder, mayRun func(node.WorkloadID) bool)
}

// An Agent keeps the knobs of one node at the values that the policies want.
type Agent struct {
	Host   Host
	Config policy.Config
	// MaxSteps is the maximum number of writes in one tick. 0 means no maximum.
	MaxSteps int
	// Period is the time between two ticks if no event starts one earlier.
	Period time.Duration
	// DryRun makes the agent plan steps but perform none.
	DryRun bool
	// Shadow makes the agent decide by virtual knobs, and perform the steps on them
	// alone. If it is nil, the agent acts.
	Shadow *shadow.World
	// Spent returns the CPU time that this process has used. With it, the agent
	// makes ticks rarer than Period where they are expensive: on a node with
	// thousands of cgroups. If it is nil, ticks are never rarer.
	Spent func() time.Duration

	state     policy.State
	quotas    quotaWatch
	watermark suppresscost.Watermark
	lasted    map[node.WorkloadID]slo.Lasted
	pause     time.Duration
}

// Pause returns the time from the start of a tick to the start of the next, if
// no event comes. It is Period, or more on a node where ticks are expensive.
func (a *Agent) Pause() time.Duration { return max(a.pause, a.Period) }

// Step makes one tick. If a step of the plan fails, the other steps go on. The
// tick contains the error, and the next snapshot shows the true value.
func (a *Agent) Step(ctx context.Context) (tick.Tick, error) { return a.tickOnce(ctx, nil) }

// tickOnce makes one tick. events are the reasons why the tick starts early. If
// the period is over, there are no events.
func (a *Agent) tickOnce(ctx context.Context, events []tick.Event) (tick.Tick, error) {
	start := time.Now()
	t := tick.Tick{Begun: start, Events: events}
	s, err := a.Host.Snapshot(ctx)
	if err != nil {
		return t, fmt.Errorf("read the node: %w", err)
	}
	a.quotas = a.quotas.observe(s)
	s.SLOViolated = slices.ContainsFunc(events, func(e tick.Event) bool { return sloViolated(e) && !a.quotas.explains(e) })
	t.Snapshot, t.Sense = s, time.Since(start)

	start = time.Now()
	seen := s
	if a.Shadow != nil {
		seen = a.Shadow.See(s)
	}
	a.state, t.Wants = policy.Decide(a.Config, a.state, seen)
	t.Batch, t.Selection = a.state.Batch.Offer, a.state.Selector.Status
	t.Objectives, t.Baselines, t.BackOff = a.state.SLO.Judgements(s), a.state.SLO.Baselines, a.state.CPUBackOff.Permille
	a.lasted = slo.Follow(a.lasted, s, t.Objectives)
	t.Lasted = a.lasted
	t.Single = a.state.Single.InForce(s)
	t.Held, t.Misfits, t.Victims = a.state.CPUs, a.state.Misfits.Misfits(), a.state.Evictions.Victims
	t.Reclaim = a.state.Reclaim
	t.Slices = a.state.Seats.Slices(a.Config.Seats)
	t.Trials = a.state.Selector.Trials.Shown()
	a.watermark = a.charge(s)
	t.Watermark = a.watermark
	steps := plan.Bound(plan.Diff(seen.Knobs, t.Wants), a.MaxSteps)
	if a.Shadow != nil {
		a.Shadow.Perform(steps)
		t.Shadow = &tick.Shadow{Knobs: seen.Knobs, Steps: steps, Total: a.Shadow.Steps()}
		t.Decide = time.Since(start)
		return t, nil
	}
	t.Decide = time.Since(start)

	start = time.Now()
	var errs []error
	for i, err := range a.perform(ctx, steps) {
		t.Done = append(t.Done, tick.Outcome{Step: steps[i], Err: err})
		if err != nil {
			errs = append(errs, err)
		}
	}
	if r, reclaims := a.Host.(Reclaimer); reclaims && !a.DryRun {
		r.Reclaim(t.Reclaim.Orders(), t.Reclaim.MayRun)
	}
	if g, guards := a.Host.(Guard); guards && !a.DryRun {
		errs = append(errs, g.Guard())
	}
	t.Act = time.Since(start)
	return t, errors.Join(errs...)
}

// charge adds up the CPU that BE loses by the owner's threshold of CPU
// suppress. The sum is not a part of the policies' state, because no decision
// depends on it.
func (a *Agent) charge(s node.Snapshot) suppresscost.Watermark {
	c := a.Config.Suppress
	if !c.Enable {
		return suppresscost.Watermark{}
	}
	return a.watermark.Follow(suppresscost.Tick{
		Percent: c.ThresholdPercent, BackedOff: a.state.CPUBackOff.Permille > 0,
		CPUs: a.lendableCPUs(s), Layout: facts.LayoutOf(s), Use: a.state.Use,
	}, s)
}

// lendableCPUs returns the CPUs that BE may use. It omits the CPUs that a
// service owns, and their siblings if the isolation keeps these idle.
func (a *Agent) lendableCPUs(s node.Snapshot) unit.CPUSet {
	nodeCPUs := a.Config.NodeCPUs.WithIsolated(s)
	free := hold.PlacesOf(nodeCPUs, a.state.Use, s, nodeCPUs.Counted(s), a.state.CPUs).Free
	if apart := free.Minus(unit.CPUSetOf(a.state.Selector.LS.Siblings(s.Topology)...)); !apart.Empty() {
		return apart
	}
	return free
}

// perform performs the steps, in the order that the host chooses. It returns one
// error, or nil, for each step, in the order of the plan: replays of a record
// compare the plan.
func (a *Agent) perform(ctx context.Context, steps []plan.Step) []error {
	errs := make([]error, len(steps))
	if a.DryRun || len(steps) == 0 {
		return errs
	}
	o, orders := a.Host.(Orderer)
	if !orders {
		return a.performInOrder(ctx, steps)
	}
	order := o.Order(steps)
	ordered := make([]plan.Step, 0, len(steps))
	for _, at := range order {
		ordered = append(ordered, steps[at])
	}
	for i, err := range a.performInOrder(ctx, ordered) {
		errs[order[i]] = err
	}
	return errs
}

func (a *Agent) performInOrder(ctx context.Context, steps []plan.Step) []error {
	errs := make([]error, 0, len(steps))
	b, batches := a.Host.(Batcher)
	for len(errs) < len(steps) {
		rest := steps[len(errs):]
		if batches {
			errs = append(errs, b.ApplyAll(ctx, rest)...)
		} else {
			errs = append(errs, a.Host.Apply(ctx, rest[0]))
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

// Run makes ticks until ctx ends, and returns the error of ctx. A tick starts
// when Pause is over, and at once when wake delivers an event. Run calls
// observe after each tick.
//
// Events that come during a tick, or soon after it (in the gap), wait for the
// next tick. Requests of an operator do not wait for the end of the gap. The
// start of a container waits at most for startGap. If a single event means that
// work waits, a second tick soon follows, because the rates in the first tick
// are too old.
//
// If wake is nil, no event comes. The goroutine that sends events must stop
// when ctx ends.
func (a *Agent) Run(ctx context.Context, wake <-chan tick.Event, observe func(tick.Tick, error)) error {
	due := time.NewTimer(0)
	defer due.Stop()
	var waiting []tick.Event
	var pace pace
	var cost time.Duration // CPU time of the last tick
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
			waiting = repeatEvents(t.Events, a.quotas)
		}
		end := t.Begun.Add(gap)
		rest := time.NewTimer(time.Until(end))
		for resting := true; resting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-wake:
				waiting = tick.Join(waiting, e)
				resting = !startsAtOnce(e)
				if early := t.Begun.Add(startGap); e.Kind == tick.EventStart && early.Before(end) {
					end = early
					rest.Reset(time.Until(end))
				}
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

// repeatEvents returns the events of a tick that the next tick must handle
// again: the rates of this tick cover mostly the time before the event, but
// those of the next tick cover the time after it. If the quota of the service
// explains the event, BE need not react, and a second look is of no use.
func repeatEvents(events []tick.Event, quotas quotaWatch) []tick.Event {
	var same []tick.Event
	for _, e := range events {
		if !e.Again && isWait(e) && !quotas.explains(e) {
			e.More, e.Again = 0, true
			same = append(same, e)
		}
	}
	return same
}

// startsAtOnce reports whether an event starts a tick at once, even during a
// storm of events. For these events, an operator waits for the answer, or
// best-effort work is less isolated until the tick. They are rare.
func startsAtOnce(e tick.Event) bool { return e.Kind == tick.EventPin || e.Kind == tick.EventHandover }

// isNew reports whether an event is new, or represents other new events (More).
func isNew(e tick.Event) bool { return !e.Again || e.More > 0 }

// isWait reports whether an event means that work waits for a resource.
// sloViolated reports whether the event is also about a single service.
func isWait(e tick.Event) bool      { return e.Kind == tick.EventDelay || e.Kind == tick.EventPressure }
func sloViolated(e tick.Event) bool { return isWait(e) && e.Workload != "" }

// drain takes all present events from wake, and appends them to waiting.
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

// State returns the state of the policies. Another agent that resumes from it
// decides as if there had been no restart.
func (a *Agent) State() policy.State { return a.state }

// Resume continues from the State of another agent.
func (a *Agent) Resume(st policy.State) { a.state = st }
