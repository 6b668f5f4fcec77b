package cluster

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

func TestTheOwnerOfABoundedPodIsTold(t *testing.T) {
	api := &judge{}
	b := newBoundTeller(api, "node-1", slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); b.run(ctx) }()
	defer func() { stop(); <-over }()
	pods := map[node.CgroupPath]evictablePod{"be/a": {PodName: apiserver.PodName{Namespace: "b", Name: "job", UID: "u"}}}
	at := time.Unix(1e9, 0)
	follow := func(after time.Duration, bounds map[node.WorkloadID]culprit.Bound) {
		at = at.Add(after)
		b.follow(tick.Tick{Begun: at, Single: bounds, Snapshot: node.Snapshot{Workloads: []node.Workload{{ID: "b/job", Cgroup: "be/a"}, {ID: "b/other", Cgroup: "be/b"}}}}, pods)
	}
	bound := map[node.WorkloadID]culprit.Bound{"b/job": {May: 1500, Victim: "shop/web", Share: 90}, "b/other": {May: 100, Victim: "shop/web"}}
	events := func(n int) []apiserver.Occurrence {
		var all []apiserver.Occurrence
		soon(t, "events", func() bool { _, all = api.told(); return len(all) >= n })
		return all
	}
	follow(0, nil)
	follow(time.Second, bound)
	follow(time.Second, bound)
	if all := events(1); len(all) != 1 || all[0].Reason != "CPUBounded" || !all[0].Warning || all[0].Pod.Name != "job" || !strings.Contains(all[0].Message, "shop/web") {
		t.Errorf("%+v", all)
	}
	follow(time.Second, nil) // within a minute of the last event
	follow(time.Second, bound)
	follow(time.Second, nil)
	if all := events(1); len(all) != 1 {
		t.Errorf("within a minute: %+v", all)
	}
	follow(time.Minute, nil) // what has changed meanwhile is told
	if all := events(2); len(all) != 2 || all[1].Reason != "CPUBoundRemoved" || all[1].Warning {
		t.Errorf("%+v", all)
	}
}

// TestTheOwnerOfAServiceLearnsOfBounds checks the events of a service for which batch work is
// bounded. A culprit that another pod replaces again and again is no news.
func TestTheOwnerOfAServiceLearnsOfBounds(t *testing.T) {
	api := &judge{}
	b := newBoundTeller(api, "node-1", slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); b.run(ctx) }()
	defer func() { stop(); <-over }()
	pods := map[node.CgroupPath]evictablePod{"ls/web": {PodName: apiserver.PodName{Namespace: "shop", Name: "web", UID: "u"}}}
	at := time.Unix(1e9, 0)
	follow := func(after time.Duration, culprits ...node.WorkloadID) {
		at = at.Add(after)
		turn := tick.Tick{Begun: at, Single: map[node.WorkloadID]culprit.Bound{}, Snapshot: node.Snapshot{Workloads: []node.Workload{
			{ID: "shop/web", Cgroup: "ls/web", Class: node.LS}, {ID: "shop/db", Cgroup: "ls/db", Class: node.LS},
		}}}
		for _, id := range culprits {
			turn.Single[id] = culprit.Bound{May: 500, Victim: "shop/web", Share: 90}
		}
		b.follow(turn, pods)
	}
	events := func(n int) []apiserver.Occurrence {
		var all []apiserver.Occurrence
		soon(t, "events", func() bool { _, all = api.told(); return len(all) >= n })
		return all
	}
	follow(0)
	follow(time.Second, "b/job-1")
	for i := range 300 { // five minutes
		follow(time.Second, node.WorkloadID("b/job-"+string(rune('a'+i/60))))
	}
	if all := events(1); len(all) != 1 || all[0].Reason != "BatchWorkBounded" || all[0].Warning || all[0].Pod.Name != "web" || !strings.Contains(all[0].Message, "b/job-1:") {
		t.Errorf("%+v", all)
	}
	follow(time.Second)
	if all := events(2); len(all) != 2 || all[1].Reason != "BatchWorkReleased" || all[1].Warning {
		t.Errorf("%+v", all)
	}
	follow(time.Minute, "b/4", "b/2", "b/3", "b/1", "b/5")
	if all := events(3); len(all) != 3 || !strings.Contains(all[2].Message, "b/1, b/2, b/3 and 2 more:") {
		t.Errorf("%+v", all)
	}
}
