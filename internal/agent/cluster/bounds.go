package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// maxBoundEvents is the number of events that wait for the API server. Later ones
	// are dropped: the NodeReport has the same.
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

	// Only the loop uses the fields below. bounds are those of the last tick, and
	// told has the time of the last event about a pod.
	bounds map[node.WorkloadID]culprit.Bound
	told   map[node.WorkloadID]time.Time
}

func newBoundTeller(api evictor, name string, log *slog.Logger) *boundTeller {
	return &boundTeller{api: api, node: name, log: log, queue: make(chan apiserver.Occurrence, maxBoundEvents), told: map[node.WorkloadID]time.Time{}}
}

// follow compares the bounds of a tick with those of the last one. pods are those
// that the API server knows, by cgroup.
func (b *boundTeller) follow(t tick.Tick, pods map[node.CgroupPath]evictablePod) {
	if len(t.Single) == 0 && len(b.bounds) == 0 {
		return
	}
	now := t.Begun
	maps.DeleteFunc(b.told, func(_ node.WorkloadID, at time.Time) bool { return now.Sub(at) >= boundEventEvery })
	for i := range t.Snapshot.Workloads {
		w := &t.Snapshot.Workloads[i]
		is, bounded := t.Single[w.ID]
		was, had := b.bounds[w.ID]
		pod, known := pods[w.Cgroup]
		if bounded == had || !known || !b.told[w.ID].IsZero() {
			continue
		}
		o := apiserver.Occurrence{Pod: pod.PodName, Node: b.node, Warning: bounded, Reason: "CPUBounded", Message: is.Text(), At: now}
		if had {
			o.Reason, o.Message = "CPUBoundRemoved", fmt.Sprintf("the bound of %v for %s is gone", was.May, was.Victim)
		}
		select {
		case b.queue <- o:
			b.told[w.ID] = now
		default:
		}
	}
	b.bounds = t.Single
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
