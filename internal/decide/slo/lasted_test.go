package slo

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// TestTimeWithoutAVerdictCounts has a service that keeps its objective, one whose source
// goes silent, and one that gets too few requests. Neither of the last two may look like
// the first.
func TestTimeWithoutAVerdictCounts(t *testing.T) {
	lasts := func(b *requestScene, seconds int, before map[node.WorkloadID]Lasted) map[node.WorkloadID]Lasted {
		for range seconds {
			b.run(1)
			before = Follow(before, b.s, b.x.Judgements(b.s))
		}
		return before
	}
	for name, c := range map[string]struct {
		change func(*requestScene)
		want   Verdict
	}{
		"it goes on":           {func(*requestScene) {}, Kept},
		"slow requests":        {func(b *requestScene) { b.perTick = []uint64{0, 0, 50, 0} }, Missed},
		"a silent source":      {func(b *requestScene) { b.silent = true }, Undecided},
		"hardly any requests":  {func(b *requestScene) { b.perTick = []uint64{0, 1, 0, 0} }, Undecided},
		"overlapping requests": {func(b *requestScene) { b.unsure = 50 }, Undecided},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRequestScene(t)
			first := lasts(b, 60, nil)
			l := first["shop/web"]
			if l.Begun != time.Unix(1e9+1, 0) || l.Total() != 59*time.Second || l.Kept == 0 || l.Missed != 0 || l.Undecided == 0 {
				t.Fatalf("in a minute that begins with the first window: %+v", l)
			}
			c.change(b)
			then := lasts(b, 600, first)["shop/web"]
			if then.Begun != l.Begun || then.Total() != 659*time.Second {
				t.Errorf("after ten minutes: %+v", then)
			}
			grown := map[Verdict]time.Duration{Kept: then.Kept - l.Kept, Missed: then.Missed - l.Missed, Undecided: then.Undecided - l.Undecided}
			if grown[c.want] < 8*time.Minute {
				t.Errorf("ten minutes count as %v, want most of them %s", grown, c.want)
			}
			if first["shop/web"] != l {
				t.Error("the earlier value was changed")
			}
		})
	}
}

// TestAnotherObjectiveCountsAnew changes the objective, takes it away, and sets the clock
// back.
func TestAnotherObjectiveCountsAnew(t *testing.T) {
	s := newScene()
	all := Follow(nil, s.snap, s.tracker.Judgements(s.snap))
	minute := func() Lasted {
		for range 60 {
			s.second(10, time.Microsecond, nil)
			all = Follow(all, s.snap, s.tracker.Judgements(s.snap))
		}
		return all["shop/web"]
	}
	if l := minute(); l.Total() != time.Minute || len(all) != 1 {
		t.Fatalf("after a minute: %+v", all)
	}
	s.snap.Workloads[0].Objective.RunQueueDelay = node.Some(3 * time.Millisecond)
	if l := minute(); l.Total() != 59*time.Second || l.Begun != s.snap.At.Add(-59*time.Second) {
		t.Errorf("after a minute with another objective: %+v", l)
	}
	s.snap.At = s.snap.At.Add(-time.Hour)
	if l := minute(); l.Total() != 59*time.Second+59*time.Second {
		t.Errorf("after the clock was set back: %+v", l)
	}
	s.snap.Workloads[0].Objective = node.Objective{}
	s.second(10, time.Microsecond, nil)
	if all = Follow(all, s.snap, s.tracker.Judgements(s.snap)); all != nil {
		t.Errorf("without an objective: %+v", all)
	}
}
