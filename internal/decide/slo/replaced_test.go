package slo

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// TestAnotherPodOfTheNameBeginsAnew has a service that misses its objective, and is replaced
// by a pod of the same name, as of a StatefulSet. What the old pod missed says nothing about
// the new one. What the service bears beside it is remembered under the same name.
func TestAnotherPodOfTheNameBeginsAnew(t *testing.T) {
	hog := map[node.WorkloadID]time.Duration{"batch/train": 400 * ms}
	s := newScene()
	web := &s.snap.Workloads[0]
	web.Cgroup, web.Owner = "kubepods/podold", "StatefulSet/shop/web"
	for range 3 {
		s.second(100, 9*ms, hog)
	}
	if j := s.judgement(); j.Verdict != Missed || len(s.tracker.Violations()) != 1 {
		t.Fatalf("the old pod: %s", j.Verdict)
	}
	if got := s.tracker.Service("shop/web"); got != web.Owner {
		t.Errorf("it is remembered as %q", got)
	}
	// The counters of the new pod may even be larger: the next snapshot may come late.
	web.Cgroup = "kubepods/podnew"
	if j := s.second(1000, 100*time.Microsecond, nil); j.Verdict != Undecided || j.Cause != TooFew || len(s.tracker.Violations()) > 0 {
		t.Errorf("the new pod: %s because of %s, %+v", j.Verdict, j.Cause, s.tracker.Violations())
	}
	if j := s.second(1000, 100*time.Microsecond, nil); j.Verdict != Kept || !j.Since.Equal(s.snap.At) {
		t.Errorf("a second later: %s since %v, now %v", j.Verdict, j.Since, s.snap.At)
	}
	if got := s.tracker.Service("shop/web"); got != web.Owner {
		t.Errorf("the new pod is remembered as %q", got)
	}
}

// TestRequestsOfAnotherPodBeginAnew is the same for an objective for requests.
func TestRequestsOfAnotherPodBeginAnew(t *testing.T) {
	w := node.Workload{ID: "shop/web", Class: node.LS, Cgroup: "kubepods/podold"}
	w.Objective.Requests = node.RequestObjective{Source: node.SourceMetrics, Port: 8080}
	w.Objective.Requests.Within[len(node.Percentiles)-2] = 5 * ms
	at := time.Unix(1000, 0)
	var x Tracker
	read := func(inTime, late uint64) RequestJudgement {
		at = at.Add(15 * time.Second)
		w.Usage.Requests = node.Requests{At: at, Bounds: []time.Duration{5 * ms}, Counts: []uint64{inTime, late}}
		s := node.Snapshot{At: at, Workloads: []node.Workload{w}}
		x = x.Observe(s)
		return x.Judgements(s)["shop/web"].Requests
	}
	read(1000, 0)
	if j := read(1000, 1000); j.Verdict != Missed {
		t.Fatalf("the old pod: %+v", j)
	}
	w.Cgroup = "kubepods/podnew"
	if j := read(2000, 2000); j.Verdict != Undecided || j.Cause != TooFew || x.Requests["shop/web"].Miss.Happened() {
		t.Errorf("the new pod: %+v", j)
	}
	if j := read(4000, 2000); j.Verdict != Kept || j.Total != 2000 {
		t.Errorf("15 s later: %+v", j)
	}
}
