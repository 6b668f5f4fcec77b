package testbed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/usage"
	"tenon.sh/tenon/internal/model/node"
)

// GovernPeriod is the time between two ticks if Tenon's loop runs in this
// process with CPU suppress. It is half of the time constant of the policies'
// averages. The loop runs on the client's CPUs, and a tick takes 1 to 2 ms.
// With a shorter period the client would send late. Without CPU suppress one
// tick is enough, because the kernel keeps its settings.
const GovernPeriod = 500 * time.Millisecond

// An AgentRunner runs Tenon during a run.
type AgentRunner struct {
	host      *host.Host
	workloads []node.Workload
	begun     time.Time
	cancel    context.CancelFunc
	done      chan struct{}
	State     string       // state directory of a tenond; empty: the lab's own loop runs
	release   func() error // undoes changes outside the cgroups; nil: there are none
	turns     *loop.Agent  // acts in turns; nil: the agent acts all the time

	mu        sync.Mutex
	writes    []string
	faults    []string
	selection node.Selection // after the last tick
}

// RunAgent runs Tenon's loop in this process. It makes one tick. It makes
// further ticks if on is set (for CPU suppress), and for some isolation
// mechanisms: one in each GovernPeriod, and one for each event of the mechanism.
func (s *Site) RunAgent(ctx context.Context, work []node.Workload, config policy.Config, on bool) (*AgentRunner, error) {
	for _, w := range work {
		s.Host.Manage(w)
	}
	s.Host.Show(policy.Files(config, work))
	mechanism := s.mechanismHere(config.CPUQOS)
	var alarms <-chan usage.Delayed
	if mechanism.Row().FollowsLS { // it follows the CPUs of the service
		var err error
		if alarms, err = s.Host.Delays().Count(); err != nil {
			return nil, fmt.Errorf("isolate the batch work: %w", err)
		}
		s.Host.Delays().WatchSiblings(true)
	}
	g := &AgentRunner{host: s.Host, workloads: work, begun: time.Now(), done: make(chan struct{})}
	ctx, g.cancel = context.WithCancel(ctx)
	a := &loop.Agent{Host: s.Host, Period: GovernPeriod, Config: config}
	t, err := a.Step(ctx)
	g.observe(t, err)
	if !on && !mechanism.Row().Attended {
		close(g.done)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("isolate the batch work: %w", err), g.Stop())
		}
		return g, nil
	}
	// The next tick tries a failed step again, but the run is void.
	g.release = func() error {
		a.Config = policy.Config{}
		_, err := a.Step(context.Background())
		s.Host.Delays().WatchSiblings(false)
		return errors.Join(err, s.Host.Delays().Stop())
	}
	wake := make(chan tick.Event)
	go s.wakeLoop(ctx, alarms, wake)
	go func() {
		defer close(g.done)
		_ = a.Run(ctx, wake, g.observe)
	}()
	return g, nil
}

// TakeTurns prepares Tenon to act in turns in this process, as AgentRunner.Turn says.
func (s *Site) TakeTurns(work []node.Workload) *AgentRunner {
	for _, w := range work {
		s.Host.Manage(w)
	}
	s.Host.Show(policy.Files(policy.Config{CPUQOS: Pinned("")}, work))
	g := &AgentRunner{host: s.Host, workloads: work, begun: time.Now(), cancel: func() {}, done: make(chan struct{})}
	close(g.done)
	g.turns = &loop.Agent{Host: s.Host, Period: GovernPeriod}
	g.release = func() error { return g.Turn(context.Background(), policy.Config{}) }
	return g
}

// Turn makes one tick by the given policies. It is the begin of a turn of Tenon; the
// tick of the zero Config ends the turn, and gives back what the turn changed. The
// state of the policies runs on, so that a turn begins as a tick of a loop would.
// It suits isolation that needs no loop, because the kernel keeps its settings.
func (g *AgentRunner) Turn(ctx context.Context, config policy.Config) error {
	g.turns.Config = config
	t, err := g.turns.Step(ctx)
	g.observe(t, err)
	return err
}

// wakeLoop forwards the events of the isolation mechanisms and the alarms about
// siblings until ctx ends.
func (s *Site) wakeLoop(ctx context.Context, alarms <-chan usage.Delayed, wake chan<- tick.Event) {
	for {
		var e tick.Event
		select {
		case <-ctx.Done():
			return
		case r := <-s.Host.Isolation().Events():
			e = tick.Event{At: r.At, Kind: tick.EventMechanism, Text: r.Text}
		case a, ok := <-alarms:
			if !ok {
				alarms = nil
				continue
			}
			e = tick.Event{At: a.At, Kind: tick.EventDelay, Workload: a.Workload, Text: a.Text, Wait: a.Wait}
		}
		select {
		case <-ctx.Done():
			return
		case wake <- e:
		}
	}
}

func (g *AgentRunner) observe(t tick.Tick, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.selection = t.Selection
	for _, o := range t.Done {
		text := fmt.Sprintf("%.2fs %v", time.Since(g.begun).Seconds(), o.Step)
		if o.Err != nil {
			text += fmt.Sprintf(" (failed: %v)", o.Err)
		}
		g.writes = append(g.writes, text)
	}
	if err != nil && len(g.faults) < 10 {
		g.faults = append(g.faults, fmt.Sprintf("Tenon failed after %.2fs: %v", time.Since(g.begun).Seconds(), err))
	}
}

// Report returns the writes and the faults so far.
func (g *AgentRunner) Report() (writes, faults []string) {
	if g == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes, g.faults
}

// CheckMechanism returns an error if Tenon does not use the given isolation
// mechanism.
func (g *AgentRunner) CheckMechanism(mechanism node.Mechanism) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if mechanism == "" || g.selection.Mechanism == mechanism {
		return nil
	}
	return fmt.Errorf("not isolated by %s but by %s: %s", mechanism, g.selection.Mechanism, g.selection.Why)
}

// Stop ends the loop. It undoes changes that are outside the cgroups.
func (g *AgentRunner) Stop() error {
	if g == nil {
		return nil
	}
	g.cancel()
	<-g.done
	var err error
	if g.release != nil {
		if err = g.release(); err != nil {
			err = fmt.Errorf("end the isolation of the batch work: %w", err)
		}
	}
	for _, w := range g.workloads {
		g.host.Forget(w.ID)
	}
	return err
}
