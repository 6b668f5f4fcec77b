package slo

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// windows lets windows pass in which web, which has no objective, has waits of a length each
// second, and BE work a part of 100 in them.
func (s *scene) windows(n int, length time.Duration, forBE int) Suggestion {
	for range n * int(BaselineWindow/time.Second) {
		s.second(1000, length, map[node.WorkloadID]time.Duration{
			"batch/train": time.Duration(forBE) * ms, "shop/web": time.Duration(60-forBE/2) * ms, "kube/dns": time.Duration(40-forBE/2) * ms,
		})
	}
	got, _ := s.tracker.Baselines.Of("shop/web")
	return got
}

func newUnstated() *scene {
	s := newScene()
	s.snap.Workloads[0].Objective = node.Objective{}
	return s
}

// TestAnObjectiveIsSuggestedFromQuietWindows has a service without an objective, beside batch
// work that comes later. What it waits beside this work is no reason for a longer objective.
func TestAnObjectiveIsSuggestedFromQuietWindows(t *testing.T) {
	s := newUnstated()
	first := s.windows(EnoughQuiet, 100*time.Microsecond, 1) // the first window begins with the second reading
	if first.RunQueueDelay != 0 || first.Quiet != EnoughQuiet-1 || first.Windows != first.Quiet {
		t.Errorf("after %d windows: %+v", EnoughQuiet-1, first)
	}
	want := Suggestion{RunQueueDelay: 500 * time.Microsecond, Tail: node.DelayBound(9), Windows: EnoughQuiet, Quiet: EnoughQuiet}
	if got := s.windows(1, 100*time.Microsecond, 1); got != want {
		t.Errorf("after %d windows: %+v, want %+v", EnoughQuiet, got, want)
	}
	want.Windows += 50
	if got := s.windows(50, 9*ms, 50); got != want {
		t.Errorf("beside batch work: %+v, want %+v", got, want)
	}
	if len(s.tracker.Judgements(s.snap)) > 0 || !s.tracker.Empty() {
		t.Errorf("a suggestion is no objective: %+v", s.tracker)
	}
	// It has more load, and waits longer without batch work as well.
	if got := s.windows(2*mostQuiet, 600*time.Microsecond, 1); got.RunQueueDelay != 5*ms || got.Tail != node.DelayBound(12) || got.Quiet > mostQuiet {
		t.Errorf("with more load: %+v", got)
	}
}

// TestWhatSaysNothingSuggestsNothing has services for which no objective may be suggested.
func TestWhatSaysNothingSuggestsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*node.Workload)
		waits   uint64 // in a second
		known   bool
		windows bool // they are counted
	}{
		"one that states an objective for requests": {change: func(w *node.Workload) { w.Objective.Requests.Within[4] = ms }, waits: 1000},
		"one whose objective is too strict":         {change: func(w *node.Workload) { w.Objective.TooStrict = node.Some(time.Microsecond) }, waits: 1000},
		"batch work":                                {change: func(w *node.Workload) { w.Class = node.BE }, waits: 1000},
		"one whose waits have no lengths":           {change: func(w *node.Workload) { w.Usage.Delay = node.RunQueueDelay{} }, waits: 1000},
		"one that waits rarely":                     {change: func(*node.Workload) {}, waits: 10, known: true},
		"one that its own limit stops":              {change: func(*node.Workload) {}, waits: 1000, known: true, windows: true},
	} {
		s := newUnstated()
		c.change(&s.snap.Workloads[0])
		for range 40 * 10 {
			if c.windows {
				u := &s.snap.Workloads[0].Usage
				u.Throttled = node.Some(u.Throttled.Or(0) + ms)
			}
			s.second(c.waits, 100*time.Microsecond, map[node.WorkloadID]time.Duration{"kube/dns": 100 * ms})
		}
		got, known := s.tracker.Baselines.Of("shop/web")
		if known != c.known || got.RunQueueDelay != 0 || got.Quiet != 0 || (got.Windows > 0) != c.windows {
			t.Errorf("%s: known %v, %+v", name, known, got)
		}
	}
}

// TestTheBaselineIsThatOfOnePod replaces the pod by another one of its name.
func TestTheBaselineIsThatOfOnePod(t *testing.T) {
	s := newUnstated()
	s.windows(40, 100*time.Microsecond, 1)
	s.snap.Workloads[0].Cgroup = "kubepods/podnew"
	if got := s.windows(2, 100*time.Microsecond, 1); got.RunQueueDelay != 0 || got.Quiet > 2 {
		t.Errorf("%+v", got)
	}
}

func TestSuggestedTimesAreRound(t *testing.T) {
	for tail, want := range map[time.Duration]time.Duration{
		0: 10 * time.Microsecond, 3333: 10 * time.Microsecond, 3334: 20 * time.Microsecond, node.DelayBound(9): 500 * time.Microsecond,
		node.DelayBound(11): 2 * ms, node.DelayBound(14): 20 * ms, time.Second / 3: time.Second, time.Second/3 + 1: 0, node.DelayBound(28): 0,
	} {
		if got := roundUp(tail); got != want {
			t.Errorf("for %v: %v, want %v", tail, got, want)
		}
	}
}
