package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// maxBoundEvents is the number of events that wait for the API server.
	maxBoundEvents = 16
	// boundEventEvery is the least time between two events about the same pod. Each
	// event is an object in the API server.
	boundEventEvery = time.Minute
)

// A boundTeller tells the owners of pods by events that their pod alone was bounded
// for a service, and that the bound is gone. It has its own goroutine, so the loop
// never waits for an answer.
type boundTeller struct {
	api   evictor
	node  string
	log   *slog.Logger
	queue chan apiserver.Occurrence

	// told is what the owners know. Only the loop uses it.
	told map[node.WorkloadID]telling
}

// A telling is the last event about a pod.
type telling struct {
	at    time.Time
	bound culprit.Bound // zero: the bound is gone
}

func newBoundTeller(api evictor, name string, log *slog.Logger) *boundTeller {
	return &boundTeller{api: api, node: name, log: log, queue: make(chan apiserver.Occurrence, maxBoundEvents), told: map[node.WorkloadID]telling{}}
}

// follow compares the bounds of a tick with what was told. What changes within
// boundEventEvery is told after that time, unless it has changed back. pods are those
// that the API server knows, by cgroup.
func (b *boundTeller) follow(t tick.Tick, pods map[node.CgroupPath]evictablePod) {
	if len(t.Single) == 0 && len(b.told) == 0 {
		return
	}
	known := map[node.WorkloadID]telling{}
	for i := range t.Snapshot.Workloads {
		w := &t.Snapshot.Workloads[i]
		is, bounded := t.Single[w.ID]
		last, was := b.told[w.ID]
		had := was && last.bound.Victim != ""
		due := !was || t.Begun.Sub(last.at) >= boundEventEvery
		if pod, evictable := pods[w.Cgroup]; bounded != had && due && evictable {
			o := apiserver.Occurrence{Pod: pod.PodName, Node: b.node, Warning: bounded, Reason: "CPUBounded", Message: is.Text(), At: t.Begun}
			if had {
				o.Reason, o.Message = "CPUBoundRemoved", fmt.Sprintf("the bound for %s is gone", last.bound.Victim)
			}
			select {
			case b.queue <- o:
				last, was, due = telling{at: t.Begun, bound: is}, true, false
			default: // the next tick tries again
			}
		}
		if was && (last.bound.Victim != "" || !due) {
			known[w.ID] = last
		}
	}
	b.told = known
}

// run sends the events until ctx ends.
func (b *boundTeller) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-b.queue:
			if err := b.api.Tell(ctx, o); err != nil && ctx.Err() == nil {
				b.log.Warn("an event is missing", "error", err)
			}
		}
	}
}
