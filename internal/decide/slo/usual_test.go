package slo

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// TestShortWaitsForBatchWorkAreNotToBlame has a service beside batch work for which it has
// many short waits and keeps its objective. Then it misses the objective, for each of the
// reasons that are not batch work's fault, and for batch work. The waits in a second are
// those of a node with two CPUs, of which batch work uses a fifth.
func TestShortWaitsForBatchWorkAreNotToBlame(t *testing.T) {
	type waits = map[node.WorkloadID]time.Duration
	usual := waits{"batch/train": 60 * ms, "batch/spin": 60 * ms, "shop/web": 20 * ms, "kube/dns": 10 * ms}
	for name, c := range map[string]struct {
		now    waits
		want   Cause
		before Cause // without the usual waits
	}{
		"another service that runs for a tenth of the time": {waits{"batch/train": 110 * ms, "batch/spin": 100 * ms, "shop/web": 30 * ms, "shop/db": 200 * ms, "kube/dns": 10 * ms}, OtherService, ForBE},
		"twice the load":           {waits{"batch/train": 100 * ms, "batch/spin": 100 * ms, "shop/web": 190 * ms, "kube/dns": 10 * ms}, OwnThreads, ForBE},
		"a daemon":                 {waits{"batch/train": 70 * ms, "batch/spin": 70 * ms, "shop/web": 20 * ms, "kube/dns": 120 * ms}, System, ForBE},
		"a hog":                    {waits{"batch/train": 400 * ms, "batch/spin": 60 * ms, "shop/web": 60 * ms, "kube/dns": 10 * ms}, ForBE, ForBE},
		"a hog, and longer queues": {waits{"batch/train": 200 * ms, "batch/spin": 60 * ms, "shop/web": 130 * ms, "kube/dns": 10 * ms}, ForBE, ForBE},
		"a little more of all":     {waits{"batch/train": 70 * ms, "batch/spin": 70 * ms, "shop/web": 50 * ms, "kube/dns": 10 * ms}, ForBE, ForBE},
	} {
		for _, known := range []bool{true, false} {
			s, want := newScene(), c.want
			if known {
				for range 5 {
					s.second(1000, 100*time.Microsecond, usual)
				}
			} else if s.second(1000, 100*time.Microsecond, usual); true {
				want = c.before
			}
			j := s.second(100, 9*ms, c.now)
			if j.Verdict != Missed || j.Cause != want {
				t.Errorf("%s, with the usual waits %v: %s because of %s, want %s", name, known, j.Verdict, j.Cause, want)
			}
			if m := s.tracker.Violations(); len(m) != 1 || m[0].Helpless != (want != ForBE) {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

// TestUsualWaitsAreThoseInASecond learns from windows of different lengths, and only from
// those that kept the objective.
func TestUsualWaitsAreThoseInASecond(t *testing.T) {
	var u Usual
	for _, length := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second} {
		u = u.with(Reading{Waited: length / 10, ByBE: length / 20, BySelf: length / 25, BySystem: length / 100}, length)
	}
	if want := (Usual{Windows: 3, ByBE: 50 * ms, BySelf: 40 * ms, BySystem: 10 * ms}); u != want {
		t.Errorf("%+v, want %+v", u, want)
	}
	if next := u.with(Reading{}, time.Second); next != u {
		t.Errorf("learnt from waits that are not counted: %+v", next)
	}
	for range 1000 {
		u = u.with(Reading{Waited: time.Second, BySelf: time.Second}, time.Second)
	}
	if u.Windows != usualWindows || u.BySelf < 990*ms || u.ByBE > ms {
		t.Errorf("after 1000 other windows: %+v", u)
	}
	s := newScene()
	s.second(1000, 100*time.Microsecond, map[node.WorkloadID]time.Duration{"shop/web": 10 * ms})
	kept := s.tracker.Work["shop/web"].Usual
	for range 10 {
		s.second(100, 9*ms, map[node.WorkloadID]time.Duration{"batch/train": 900 * ms})
	}
	if got := s.tracker.Work["shop/web"].Usual; got != kept || kept.Windows != 1 {
		t.Errorf("learnt from a window with a miss: %+v, had %+v", got, kept)
	}
}
