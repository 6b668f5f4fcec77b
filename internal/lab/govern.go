package lab

import (
	"context"
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
	state     string // the state directory of a tenond; empty: the loop is ours

	mu     sync.Mutex
	writes []string
	faults []string
}

// govern lets Tenon's own loop and policies write the knobs of the mode, on
// the real node: the lab writes none of them.
func (b *bench) govern(ctx context.Context, p pods, suppress bool) (*governor, error) {
	if b.Agent != "" {
		return b.tenond(ctx, colocationTenond(p, suppress))
	}
	return b.site.govern(ctx, p.workloads(), policy.Config{
		CPUQOS:   policy.CPUQOS{Enable: true},
		Suppress: policy.Suppress{Enable: suppress, ThresholdPercent: watermark, CPUs: p.tested},
	}, suppress)
}

// colocationTenond is what tenond is told in the modes of colocation.
func colocationTenond(p pods, suppress bool) tenondConfig {
	return tenondConfig{
		CPUs: p.tested, Suppress: suppress, Threshold: watermark, Isolate: true, Period: governPeriod,
		Rules: []tenondRule{{Name: "nginx", Class: node.LS, Cgroup: p.nginxPod()}, {Name: "ffmpeg", Class: node.BE, Cgroup: p.jobPod()}},
	}
}

// govern turns Tenon's loop in this process: once, and then, with on, every
// governPeriod.
func (s *site) govern(ctx context.Context, work []node.Workload, config policy.Config, on bool) (*governor, error) {
	for _, w := range work {
		s.host.Manage(w)
	}
	g := &governor{host: s.host, workloads: work, begun: time.Now(), done: make(chan struct{})}
	ctx, g.cancel = context.WithCancel(ctx)
	a := &agent.Agent{Host: s.host, Period: governPeriod, Config: config}
	t, err := a.Step(ctx)
	g.observe(t, err)
	if err != nil || !on {
		close(g.done)
		if err != nil {
			g.stop()
			return nil, fmt.Errorf("isolate the batch work: %w", err)
		}
		return g, nil
	}
	go func() {
		defer close(g.done)
		_ = a.Run(ctx, nil, g.observe)
	}()
	return g, nil
}

func (g *governor) observe(t tick.Tick, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
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

// stop ends the loop. The knobs go with their cgroups.
func (g *governor) stop() {
	if g == nil {
		return
	}
	g.cancel()
	<-g.done
	for _, w := range g.workloads {
		g.host.Forget(w.ID)
	}
}
