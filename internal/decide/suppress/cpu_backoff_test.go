package suppress

import (
	"cmp"
	"fmt"
	"reflect"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func noneAlone(node.WorkloadID) bool { return false }

// TestCPUBackOffEndsInTime checks that the number of ticks does not change how
// long the back-off lasts, and that a pause does not end the back-off at once.
func TestCPUBackOffEndsInTime(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Millisecond, 330 * time.Millisecond, time.Second, 4 * time.Second} {
		g, at := BackOff{Permille: 1000, At: time.Unix(0, 0), Miss: slo.Miss{Workload: "web", At: time.Unix(0, 0)}}, time.Unix(0, 0)
		for g.Permille > 0 {
			at = at.Add(every)
			g = g.Follow(slo.Tracker{}, noneAlone, at)
		}
		if took := at.Sub(time.Unix(0, 0)); took < 50*time.Second || took >= 50*time.Second+every {
			t.Errorf("with a tick every %v the back-off ended after %v", every, took)
		}
	}
	g := BackOff{Permille: 1000, At: time.Unix(0, 0)}.Follow(slo.Tracker{}, noneAlone, time.Unix(3600, 0))
	if g.Permille != 900 {
		t.Errorf("after a pause of an hour the back-off is %d ‰, want 900", g.Permille)
	}
	if again := g.Follow(slo.Tracker{}, noneAlone, time.Unix(3600, 0)); again.Permille != 900 {
		t.Errorf("at the same moment again: %d ‰", again.Permille)
	}
}

// TestCPUBackOffOnlyEverNarrows checks that the back-off leaves BE at most its
// budget and at least its minimum. If an objective is missed for long, BE must
// fall to the minimum.
func TestCPUBackOffOnlyEverNarrows(t *testing.T) {
	b := Budget{Capacity: 16000, Least: 1600, May: 9000}
	g, at, last := BackOff{}, time.Unix(0, 0), b.May
	for turn := range 20 {
		at = at.Add(time.Second)
		g = g.Follow(slo.Tracker{Work: map[node.WorkloadID]slo.State{"web": {Miss: slo.Miss{Workload: "web", At: at}}}}, noneAlone, at)
		g = g.observe(b, time.Second)
		now := b.subtract(g).May
		if now > last || now < b.Least || (turn > 10 && now != b.Least) {
			t.Fatalf("after %d s of waiting BE may use %v after %v", turn+1, now, last)
		}
		last = now
	}
	if below := (Budget{Least: 1600, May: 1600, Reason: "least"}).subtract(g); below.May != 1600 || below.Reason != "least" {
		t.Errorf("the least became %+v", below)
	}
}

// TestManyObjectivesCostOneHalving checks that several missed objectives in one
// window cause one halving.
func TestManyObjectivesCostOneHalving(t *testing.T) {
	missed := func(at time.Time, ids ...node.WorkloadID) slo.Tracker {
		x := slo.Tracker{Work: map[node.WorkloadID]slo.State{}}
		for _, id := range ids {
			x.Work[id] = slo.State{Miss: slo.Miss{Workload: id, At: at}}
		}
		return x
	}
	at := time.Unix(100, 0)
	g := BackOff{}.Follow(missed(at, "web"), noneAlone, at)
	for i, id := range []node.WorkloadID{"api", "db", "cache"} {
		at := at.Add(time.Duration(i+1) * 100 * time.Millisecond)
		g = g.Follow(missed(at, id), noneAlone, at)
	}
	if g.Permille != 500 {
		t.Errorf("the back-off is %d ‰ for four objectives within one window, want 500", g.Permille)
	}
	if g = g.Follow(missed(at.Add(slo.LeastWindow), "api"), noneAlone, at.Add(slo.LeastWindow)); g.Permille != 750 {
		t.Errorf("the back-off is %d ‰ after a second window, want 750", g.Permille)
	}
}

// TestAClockThatWasSetBackDelaysNoCPU sets the clock back after a CPU back-off
// was saved. The back-off must continue as if it were saved now.
func TestAClockThatWasSetBackDelaysNoCPU(t *testing.T) {
	now, future := time.Unix(1000, 0), time.Unix(1e6, 0)
	g := BackOff{Permille: 500, At: future, Cut: future}.Follow(slo.Tracker{}, noneAlone, now)
	if g = g.Follow(slo.Tracker{}, noneAlone, now.Add(time.Second)); g.Permille != 480 {
		t.Errorf("the back-off is %d ‰ a second later, want 480", g.Permille)
	}
}

// A line is a service that misses its objective when BE work has more than most thousandths
// of its budget.
type line struct {
	id      node.WorkloadID
	service string // its controller
	g       BackOff
	at      time.Time
	most    int64
	missed  time.Time
	misses  int
}

// second lets a second pass for a service that is judged by its waits.
func (p *line) second() {
	p.at = p.at.Add(time.Second)
	if 1000-p.g.Permille > p.most {
		p.missed = p.at
		p.misses++
	}
	id := cmp.Or(p.id, "web")
	f := slo.State{Of: slo.Of{Service: p.service}}
	if p.at.Sub(p.missed) < 5*time.Second {
		f.Miss = slo.Miss{Workload: id, At: p.missed}
	}
	p.g = p.g.Follow(slo.Tracker{Work: map[node.WorkloadID]slo.State{id: f}}, noneAlone, p.at)
}

// TestTheLevelOfAllBEWorkIsProbedRarely counts the missed windows of an hour. Without a
// memory, each return to the level would cost one or more.
func TestTheLevelOfAllBEWorkIsProbedRarely(t *testing.T) {
	p := line{at: time.Unix(1e6, 0), most: 600}
	var sum int64
	for range 3600 {
		p.second()
		sum += 1000 - p.g.Permille
	}
	t.Logf("%d missed windows of 3600; BE work had %d ‰ on average, 600 would keep the objective", p.misses, sum/3600)
	if p.misses > 12 || sum/3600 < 480 {
		t.Errorf("%d missed windows, and BE work had %d ‰", p.misses, sum/3600)
	}
	// The service needs nothing any more: BE work gets everything back.
	p.most = 1000
	for range 3600 {
		p.second()
	}
	if p.g.Permille != 0 {
		t.Errorf("an hour later: %+v", p.g)
	}
}

// TestALevelGoesWithItsService holds BE work at the level of a service, which then has no
// objective any more.
func TestALevelGoesWithItsService(t *testing.T) {
	p := line{at: time.Unix(1e6, 0), most: 600}
	for range 60 {
		p.second()
	}
	if len(p.g.Levels) != 1 || p.g.Permille < 400 {
		t.Fatalf("%+v", p.g)
	}
	for range 60 {
		p.at = p.at.Add(time.Second)
		p.g = p.g.Follow(slo.Tracker{}, noneAlone, p.at)
	}
	if p.g.Permille != 0 {
		t.Errorf("without an objective: %+v", p.g)
	}
}

// TestALevelIsThatOfAllPodsOfAService replaces the pod of a service each five minutes. After
// the first one, the level is known: the next pods miss their objective only for a probe.
func TestALevelIsThatOfAllPodsOfAService(t *testing.T) {
	p := line{at: time.Unix(1e6, 0), most: 600, service: "ReplicaSet/shop/web"}
	for pod := range 6 {
		p.id, p.missed = node.WorkloadID(fmt.Sprint("shop/web-", pod)), time.Time{}
		before := p.misses
		for range 300 {
			p.second()
		}
		if n := p.misses - before; pod > 0 && n > 1 {
			t.Errorf("pod %d: %d missed windows", pod, n)
		}
	}
	if len(p.g.Levels) != 1 {
		t.Errorf("%+v", p.g.Levels)
	}
}

// TestABackOffFollowsTheMeanOfTheBudget varies the budget by 3 % around a mean, as the use of
// a service does, and then lets it fall and rise by a tenth. Only a fall counts at once.
func TestABackOffFollowsTheMeanOfTheBudget(t *testing.T) {
	b := Budget{Capacity: 16000, Least: 1600}
	g := BackOff{Permille: 400}
	pass := func(mean unit.MilliCPU) (least, most unit.MilliCPU) {
		least = b.Capacity
		for second := range 90 {
			b.May = mean + unit.MilliCPU(second%3-1)*mean*3/100
			g = g.observe(b, time.Second)
			left := b.subtract(g).May
			if left > b.May || left < b.Least {
				t.Fatalf("a budget of %v: %+v leaves %v", b.May, g, left)
			}
			if second >= 30 {
				least, most = min(least, left), max(most, left)
			}
		}
		return least, most
	}
	for _, mean := range []unit.MilliCPU{13000, 11700, 13000} {
		if least, most := pass(mean); most-least > b.Capacity.Percent(Deadband)/2 || least > mean*6/10 || most < mean*6/10 {
			t.Errorf("a budget of about %v: %v to %v are left, want about %v", mean, least, most, mean*6/10)
		}
	}
	b.May = 12000
	if left := b.subtract(g.observe(b, time.Second)).May; left != 7200 {
		t.Errorf("a second after a fall to %v: %v are left, want 7200m", b.May, left)
	}
	b.May = 14000
	if left := b.subtract(g.observe(b, time.Second)).May; left > 8000 {
		t.Errorf("a second after a rise to %v: %v are left", b.May, left)
	}
	b.May = b.Least // an input of the budget is missing
	if next := g.observe(b, time.Second); !reflect.DeepEqual(next, g) {
		t.Errorf("a budget that says nothing: %+v after %+v", next, g)
	}
	b.May = 5000 // a service needs nearly all at once, and CPU suppress bounds BE work by that
	if got := b.subtract(g.observe(b, 100*time.Millisecond)).May; got > 5000 {
		t.Errorf("of a budget of 5000m, %v are left", got)
	}
}

// TestTheBackOffForRequestsConverges counts the missed windows of an hour of a service that
// is judged by its requests, in windows of 15 s that are known a second late.
func TestTheBackOffForRequestsConverges(t *testing.T) {
	var g BackOff
	at, begun := time.Unix(1e6, 0), time.Unix(1e6, 0)
	var window slo.RequestState
	misses, windows, most, sum := 0, 0, int64(0), int64(0)
	for range 3600 {
		at = at.Add(time.Second)
		sum += 1000 - g.Permille
		if at.After(begun) {
			most = max(most, 1000-g.Permille)
		}
		if at.Sub(begun) == 15*time.Second {
			windows++
			window = slo.RequestState{Judgement: slo.Judgement{Verdict: slo.Kept}}
			was := begun
			begun = at
			if most > 600 {
				misses++
				window.Miss = slo.Miss{Workload: "web", At: at, Percentile: "p99"}
				window.Judgement = slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, Begun: was, At: at}
				begun = at.Add(4 * time.Second) // the next reading
			}
			window.From.At, most = begun, 0
			if begun.After(at) {
				window.From.At = time.Time{}
			}
		}
		if at.Equal(begun) {
			window.From.At = begun
		}
		g = g.Follow(slo.Tracker{Requests: map[node.WorkloadID]slo.RequestState{"web": window}}, noneAlone, at)
	}
	t.Logf("%d missed windows of %d; BE work had %d ‰ on average, 600 would keep the objective", misses, windows, sum/3600)
	if 20*misses > windows || sum/3600 < 480 {
		t.Errorf("%d missed windows of %d, and BE work had %d ‰", misses, windows, sum/3600)
	}
}
