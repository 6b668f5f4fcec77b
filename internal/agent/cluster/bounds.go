package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// maxBoundEvents is the number of events that wait for the API server.
	maxBoundEvents = 16
	// boundEventEvery is the least time between two events about the same pod. Each
	// event is an object in the API server.
	boundEventEvery = time.Minute
	// maxBoundNames is the number of pods that an event names.
	maxBoundNames = 3
)

// A boundTeller tells the owners of pods by events that a batch pod alone was bounded
// for a service, and that the bound is gone: the owner of the batch pod, and that of
// the service. It has its own goroutine, so the loop never waits for an answer.
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
	at time.Time
	// other is the other side of the bound: the service, or the batch work that gives
	// way for it. It is empty if the bound is gone.
	other string
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
	giveWay := map[node.WorkloadID][]string{} // by service
	for _, id := range slices.Sorted(maps.Keys(t.Single)) {
		victim := t.Single[id].Victim
		giveWay[victim] = append(giveWay[victim], string(id))
	}
	known := map[node.WorkloadID]telling{}
	for i := range t.Snapshot.Workloads {
		w := &t.Snapshot.Workloads[i]
		other := namesOf(giveWay[w.ID])
		is, alone := t.Single[w.ID]
		if alone {
			other = string(is.Victim)
		}
		bounded := other != ""
		last, was := b.told[w.ID]
		had := was && last.other != ""
		due := !was || t.Begun.Sub(last.at) >= boundEventEvery
		if pod, evictable := pods[w.Cgroup]; bounded != had && due && evictable {
			o := apiserver.Occurrence{Pod: pod.PodName, Node: b.node, At: t.Begun}
			switch {
			case alone:
				o.Warning, o.Reason, o.Message = true, "CPUBounded", is.Text()
			case bounded:
				o.Reason, o.Message = "BatchWorkBounded", fmt.Sprintf("it missed its objective, and waited mostly for %s: that work alone has less CPU now", other)
			case w.Class.Sensitive():
				o.Reason, o.Message = "BatchWorkReleased", "no batch work alone has less CPU for it any more"
			default:
				o.Reason, o.Message = "CPUBoundRemoved", fmt.Sprintf("the bound for %s is gone", last.other)
			}
			select {
			case b.queue <- o:
				last, was, due = telling{at: t.Begun, other: other}, true, false
			default: // the next tick tries again
			}
		}
		if was && (last.other != "" || !due) {
			known[w.ID] = last
		}
	}
	b.told = known
}

// namesOf lists a few names. It returns "" for none.
func namesOf(all []string) string {
	if more := len(all) - maxBoundNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxBoundNames], ", "), more)
	}
	return strings.Join(all, ", ")
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
