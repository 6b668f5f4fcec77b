package cluster

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
)

// A reporter sends the results of ticks to the API server as a NodeReport.
type reporter struct {
	sender   *nodereport.Sender
	uid      atomic.Pointer[types.UID] // UID of the Node object
	meter    nodereport.Meter
	pace     nodereport.Pace
	version  string
	run      string // identifies this run of tenond
	sequence int64
	// requested adds up the batch resources that the running pods request.
	requested requested
}

func newReporter(api nodereport.Applier, node, version string, log *slog.Logger) *reporter {
	r := &reporter{version: version, run: rand.Text()}
	r.sender = nodereport.NewSender(api, node, func() types.UID {
		if uid := r.uid.Load(); uid != nil {
			return *uid
		}
		return ""
	}, log)
	return r
}

// start sends reports in a goroutine until ctx ends.
func (r *reporter) start(ctx context.Context, background *sync.WaitGroup) {
	background.Go(func() { r.sender.Run(ctx) })
}

// report sends a tick to the API server, but not more often than pace allows.
func (c *Follower) report(t tick.Tick, by policy.Config, troubles []string) {
	r := c.reporter
	if t.Snapshot.At.IsZero() {
		return
	}
	uid := c.last.UID
	r.uid.Store(&uid)
	r.meter.Observe(t.Snapshot)
	cpu, memory := r.requested.take(t.Snapshot.At, t.Batch, c.view.running)
	if r.pace.IsResting(t.Snapshot.At) {
		return
	}
	known, status := c.pods.Known(), c.cfg.status
	pods := c.view.status
	pods.From, pods.At, pods.Trouble = known.From, known.At, known.Trouble
	pods.BatchCPU, pods.BatchMemory = cpu, memory
	status.Trouble = c.configTrouble()
	manager, _ := binder(c.cfg.facts)
	next := nodereport.Status(nodereport.View{
		Tick: t, Policy: by, Agent: r.version, Run: r.run, Pods: pods, Config: status, NRI: c.nriState(), CPUManager: manager, Troubles: troubles,
	}, r.pace.Conditions())
	if !r.pace.Due(t.Snapshot.At, next) {
		return
	}
	r.sequence++
	next.Sequence = r.sequence
	next.Usage, next.Percentiles = r.meter.Usage(), r.meter.Percentiles()
	r.pace.Sent(t.Snapshot.At, next)
	r.sender.Offer(next)
}

// nriState returns the runtime that gives containers their limits before they
// start (through NRI), or the reason why there is none.
func (c *Follower) nriState() nodereport.Means {
	l := c.link.Load()
	switch {
	case c.NRI == "":
		return nodereport.Means{Why: "NRI is switched off: containers get their values after their start"}
	case l == nil:
		return nodereport.Means{Why: "the runtime has not answered yet"}
	case l.Err != nil:
		return nodereport.Means{Why: l.Err.Error()}
	}
	return nodereport.Means{By: l.Runtime}
}
