package daemon

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/policy"
	"tenon.sh/tenon/internal/report"
	"tenon.sh/tenon/internal/tick"
)

// A clusterReporter sends what the cluster should know of each turn.
type clusterReporter struct {
	sender   *report.Sender
	uid      atomic.Pointer[types.UID] // of the node
	meter    report.Meter
	pace     report.Pace
	version  string
	run      string // names this run
	sequence int64
	// requested is what running pods request of batch resources.
	requested requested
}

func newClusterReporter(api report.Applier, node, version string, log *slog.Logger) *clusterReporter {
	r := &clusterReporter{version: version, run: rand.Text()}
	r.sender = report.NewSender(api, node, func() types.UID {
		if uid := r.uid.Load(); uid != nil {
			return *uid
		}
		return ""
	}, log)
	return r
}

// start sends until ctx ends.
func (r *clusterReporter) start(ctx context.Context, background *sync.WaitGroup) {
	background.Go(func() { r.sender.Run(ctx) })
}

// turn takes a turn that was decided by a policy.
func (c *cluster) turn(t tick.Tick, by policy.Config, fights []string) {
	r := c.reporter
	if t.Snapshot.At.IsZero() {
		return
	}
	uid := c.kept.UID
	r.uid.Store(&uid)
	r.meter.Observe(t.Snapshot)
	cpu, memory := r.requested.take(t.Snapshot.At, t.Batch, c.view.running)
	if r.pace.Rests(t.Snapshot.At) {
		return
	}
	known, status := c.pods.Known(), c.cfg.status
	pods := c.view.status
	pods.From, pods.At, pods.Trouble = known.From, known.At, known.Trouble
	pods.BatchCPU, pods.BatchMemory = cpu, memory
	status.Trouble = c.configTrouble()
	next := report.Status(report.View{
		Tick: t, Policy: by, Agent: r.version, Run: r.run, Pods: pods, Config: status, Fights: fights, NRI: c.nriState(),
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

// nriState says by which runtime containers have their values before they
// start, or why they have not.
func (c *cluster) nriState() report.Means {
	l := c.link.Load()
	switch {
	case c.NRI == "":
		return report.Means{Why: "it is switched off: containers get their values after they have started"}
	case l == nil:
		return report.Means{Why: "the runtime has not answered yet"}
	case l.Err != nil:
		return report.Means{Why: l.Err.Error()}
	}
	return report.Means{By: l.Runtime}
}
