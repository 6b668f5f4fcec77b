package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent"
	"tenon.sh/tenon/internal/host"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/policy"
	"tenon.sh/tenon/internal/tick"
)

// governPeriod is the time between two turns of Tenon's loop under the
// watermark, half the span of policy's means. The loop shares the client's CPUs, and a
// turn takes a millisecond or two: more often, and the client would send late.
// Without the watermark one turn is enough: what it wrote works in the kernel.
const governPeriod = 500 * time.Millisecond

// watermark is cpuSuppressThresholdPercent of the published experiment.
const watermark = 65

// A governor is Tenon at work during a run.
type governor struct {
	host      *host.Host
	workloads []node.Workload
	begun     time.Time
	cancel    context.CancelFunc
	done      chan struct{}
	state     string       // the state directory of a tenond; empty: the loop is ours
	release   func() error // undoes what does not go with the cgroups; nil: nothing

	mu     sync.Mutex
	writes []string
	faults []string
	ladder node.LadderStatus // after the last turn
}

// govern lets Tenon's own loop and policies write the knobs of the mode, on
// the real node: the lab writes none of them.
func (b *bench) govern(ctx context.Context, p pods, t traits) (*governor, error) {
	if b.Agent != "" {
		return b.tenond(ctx, colocationTenond(p, t))
	}
	return b.site.govern(ctx, p.workloads(), policy.Config{
		CPUQOS:   pinned(t.rung),
		Suppress: policy.Suppress{Enable: t.suppress, ThresholdPercent: watermark, CPUs: p.tested},
	}, t.suppress)
}

// colocationTenond is what tenond is told in the modes of colocation.
func colocationTenond(p pods, t traits) tenondConfig {
	return tenondConfig{
		CPUs: p.tested, Suppress: t.suppress, Threshold: watermark, Isolate: true, Rung: t.rung, Period: governPeriod,
		Rules: []tenondRule{{Name: "nginx", Class: node.LS, Cgroup: p.nginxPod()}, {Name: "ffmpeg", Class: node.BE, Cgroup: p.jobPod()}},
	}
}

// govern turns Tenon's loop in this process: once, and then, with on or on a
// rung that needs it, every governPeriod and when the rung calls for it.
func (s *site) govern(ctx context.Context, work []node.Workload, config policy.Config, on bool) (*governor, error) {
	for _, w := range work {
		s.host.Manage(w)
	}
	s.host.Show(policy.Files(config, work))
	rung := s.rungHere(config.CPUQOS)
	var alarms <-chan host.Delayed
	if rung == node.RungSiblings { // which follows where the service runs
		var err error
		if alarms, err = s.host.CountDelays(); err != nil {
			return nil, fmt.Errorf("isolate the batch work: %w", err)
		}
		s.host.SenseSiblings(true)
	}
	g := &governor{host: s.host, workloads: work, begun: time.Now(), done: make(chan struct{})}
	ctx, g.cancel = context.WithCancel(ctx)
	a := &agent.Agent{Host: s.host, Period: governPeriod, Config: config}
	t, err := a.Step(ctx)
	g.observe(t, err)
	if !on && !attended[rung] {
		close(g.done)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("isolate the batch work: %w", err), g.stop())
		}
		return g, nil
	}
	// What has failed is tried again in the next turn, and voids the run.
	g.release = func() error {
		a.Config = policy.Config{}
		_, err := a.Step(context.Background())
		s.host.SenseSiblings(false)
		return errors.Join(err, s.host.StopDelays())
	}
	wake := make(chan tick.Event)
	go s.wakeLoop(ctx, alarms, wake)
	go func() {
		defer close(g.done)
		_ = a.Run(ctx, wake, g.observe)
	}()
	return g, nil
}

// wakeLoop passes on what the rungs and the alarms of siblings call for, until
// ctx ends.
func (s *site) wakeLoop(ctx context.Context, alarms <-chan host.Delayed, wake chan<- tick.Event) {
	for {
		var e tick.Event
		select {
		case <-ctx.Done():
			return
		case r := <-s.host.RungEvents():
			e = tick.Event{At: r.At, Kind: tick.EventRung, Text: r.Text}
		case a, ok := <-alarms:
			if !ok {
				alarms = nil
				continue
			}
			e = tick.Event{At: a.At, Kind: tick.EventDelay, Workload: a.Workload, Text: a.Text}
		}
		select {
		case <-ctx.Done():
			return
		case wake <- e:
		}
	}
}

func (g *governor) observe(t tick.Tick, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ladder = t.Ladder
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

// report returns what has been written, and what went wrong.
func (g *governor) report() (writes, faults []string) {
	if g == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes, g.faults
}

// on says that the loop isolates with a rung; else the error says why not.
func (g *governor) on(rung node.Rung) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rung == "" || g.ladder.Rung == rung {
		return nil
	}
	return fmt.Errorf("not isolated by %s but by %s: %s", rung, g.ladder.Rung, g.ladder.Why)
}

// stop ends the loop, and undoes what does not go with the cgroups.
func (g *governor) stop() error {
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
