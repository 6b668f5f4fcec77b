package policy

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
)

// TestCPUBackOffEndsInTime checks that the number of ticks does not change how
// long the back-off lasts, and that a pause does not end the back-off at once.
func TestCPUBackOffEndsInTime(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Millisecond, 330 * time.Millisecond, time.Second, 4 * time.Second} {
		g, at := cpuBackOff{Permille: 1000, At: time.Unix(0, 0), Reason: "web"}, time.Unix(0, 0)
		for g.Permille > 0 {
			at = at.Add(every)
			g = g.follow(slo.Tracker{}, at)
		}
		if took := at.Sub(time.Unix(0, 0)); took < 50*time.Second || took >= 50*time.Second+every {
			t.Errorf("with a tick every %v the back-off ended after %v", every, took)
		}
	}
	g := cpuBackOff{Permille: 1000, At: time.Unix(0, 0)}.follow(slo.Tracker{}, time.Unix(3600, 0))
	if g.Permille != 900 {
		t.Errorf("after a pause of an hour the back-off is %d ‰, want 900", g.Permille)
	}
	if again := g.follow(slo.Tracker{}, time.Unix(3600, 0)); again.Permille != 900 {
		t.Errorf("at the same moment again: %d ‰", again.Permille)
	}
}

// TestCPUBackOffOnlyEverNarrows checks that the back-off leaves BE at most its
// budget and at least its minimum. If an objective is missed for long, BE must
// fall to the minimum.
func TestCPUBackOffOnlyEverNarrows(t *testing.T) {
	b := budget{capacity: 16000, least: 1600, may: 9000}
	g, at, last := cpuBackOff{}, time.Unix(0, 0), b.may
	for turn := range 20 {
		at = at.Add(time.Second)
		g = g.follow(slo.Tracker{Work: map[node.WorkloadID]slo.State{"web": {Missed: true, At: at, Reason: "web waits"}}}, at)
		now := b.subtract(g).may
		if now > last || now < b.least || (turn > 10 && now != b.least) {
			t.Fatalf("after %d s of waiting BE may use %v after %v", turn+1, now, last)
		}
		last = now
	}
	if below := (budget{least: 1600, may: 1600, reason: "least"}).subtract(g); below.may != 1600 || below.reason != "least" {
		t.Errorf("the least became %+v", below)
	}
}

// TestManyObjectivesCostOneHalving checks that several missed objectives in one
// window cause one halving.
func TestManyObjectivesCostOneHalving(t *testing.T) {
	missed := func(at time.Time, ids ...node.WorkloadID) slo.Tracker {
		x := slo.Tracker{Work: map[node.WorkloadID]slo.State{}}
		for _, id := range ids {
			x.Work[id] = slo.State{Missed: true, At: at, Reason: string(id)}
		}
		return x
	}
	at := time.Unix(100, 0)
	g := cpuBackOff{}.follow(missed(at, "web"), at)
	for i, id := range []node.WorkloadID{"api", "db", "cache"} {
		at := at.Add(time.Duration(i+1) * 100 * time.Millisecond)
		g = g.follow(missed(at, id), at)
	}
	if g.Permille != 500 {
		t.Errorf("the back-off is %d ‰ for four objectives within one window, want 500", g.Permille)
	}
	if g = g.follow(missed(at.Add(slo.LeastWindow), "api"), at.Add(slo.LeastWindow)); g.Permille != 750 {
		t.Errorf("the back-off is %d ‰ after a second window, want 750", g.Permille)
	}
}

// TestAClockThatWasSetBackDelaysNoCPU sets the clock back after a CPU back-off
// was saved. The back-off must continue as if it were saved now.
func TestAClockThatWasSetBackDelaysNoCPU(t *testing.T) {
	now, future := time.Unix(1000, 0), time.Unix(1e6, 0)
	g := cpuBackOff{Permille: 500, At: future, Cut: future}.follow(slo.Tracker{}, now)
	if g = g.follow(slo.Tracker{}, now.Add(time.Second)); g.Permille != 480 {
		t.Errorf("the back-off is %d ‰ a second later, want 480", g.Permille)
	}
}
