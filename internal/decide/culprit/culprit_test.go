package culprit

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A plant is a node with a service and BE workloads that would use any amount of
// CPU up to their demand. Each makes the service wait in proportion to what it
// uses, times its weight.
type plant struct {
	state  State
	at     time.Time
	demand map[node.WorkloadID]unit.MilliCPU
	weight map[node.WorkloadID]float64
	// most is the waiting time in a second at which the service misses its objective.
	most   time.Duration
	missed time.Time // the last miss
	misses int
	others time.Duration // the waits for other work in a second
	leaves bool          // the service has no objective any more
	// helpless says that the service hardly waits for BE work when it misses its objective.
	helpless bool
	unread   node.WorkloadID // its use is not known
	ending   node.Run        // of all BE workloads
	room     unit.MilliCPU   // all BE workloads together get at most this, in equal parts; 0: no limit
	owner    string          // of all BE workloads
	web      node.WorkloadID // the service
	webOwner string          // its controller
}

const capacity = unit.MilliCPU(16000)

func newPlant(most time.Duration, demand map[node.WorkloadID]unit.MilliCPU) *plant {
	p := &plant{at: time.Unix(1e6, 0), demand: demand, most: most, weight: map[node.WorkloadID]float64{}, web: "web"}
	for id := range demand {
		p.weight[id] = 1
	}
	return p
}

// wants returns what a workload would use of an idle node.
func (p *plant) wants(id node.WorkloadID) unit.MilliCPU {
	if b, bounded := p.state.Bounds[id]; bounded {
		return min(p.demand[id], b.May)
	}
	return p.demand[id]
}

func (p *plant) used(id node.WorkloadID) unit.MilliCPU {
	if p.room == 0 {
		return p.wants(id)
	}
	var all []unit.MilliCPU
	for other := range p.demand {
		all = append(all, p.wants(other))
	}
	slices.Sort(all)
	left, most := p.room, unit.MilliCPU(0)
	for i, want := range all { // the smallest first: what it leaves is for the others
		most = left / unit.MilliCPU(len(all)-i)
		left -= min(want, most)
	}
	return min(p.wants(id), most)
}

// second lets a second pass.
func (p *plant) second() {
	p.at = p.at.Add(time.Second)
	web := node.Workload{ID: p.web, Class: node.LS, Owner: p.webOwner}
	in := Input{Capacity: capacity, Use: facts.Use{Workload: map[node.WorkloadID]unit.MilliCPU{}}, Snapshot: node.Snapshot{At: p.at}}
	kept := slo.State{Of: slo.Of{Service: p.webOwner}}
	if !p.leaves {
		web.Objective.RunQueueDelay = node.Some(2 * time.Millisecond)
		in.SLO.Work = map[node.WorkloadID]slo.State{p.web: kept}
	}
	in.Snapshot.Workloads = append(in.Snapshot.Workloads, web)
	j := slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, At: p.at, Waits: slo.Waits{Window: time.Second, Waited: p.others}}
	for id := range p.demand {
		in.Snapshot.Workloads = append(in.Snapshot.Workloads, node.Workload{ID: id, Class: node.BE, Owner: p.owner, Ending: p.ending})
		if id != p.unread {
			in.Use.Workload[id] = p.used(id)
		}
		waited := time.Duration(float64(p.used(id)) * p.weight[id] * float64(time.Millisecond))
		j.Runners = append(j.Runners, slo.Runner{ID: id, Cause: slo.ForBE, Time: waited})
		j.ByBE, j.Waited = j.ByBE+waited, j.Waited+waited
	}
	for i := range j.Runners {
		for k := i; k > 0 && (j.Runners[k].Time > j.Runners[k-1].Time || j.Runners[k].Time == j.Runners[k-1].Time && j.Runners[k].ID < j.Runners[k-1].ID); k-- {
			j.Runners[k], j.Runners[k-1] = j.Runners[k-1], j.Runners[k]
		}
	}
	if j.Waited > p.most {
		p.missed = p.at
		p.misses++
	}
	if p.at.Sub(p.missed) < 5*time.Second && !p.leaves {
		if !p.missed.Equal(p.at) {
			j.At = p.missed
		}
		if p.helpless {
			j.Cause = slo.OtherService
		}
		missed := kept
		missed.Miss, missed.Judgement = slo.Miss{Workload: p.web, At: p.missed, Helpless: p.helpless}, j
		in.SLO.Work[p.web] = missed
	}
	p.state = p.state.Follow(in)
}

func TestTheOneToBlameIsBoundedAlone(t *testing.T) {
	demand := map[node.WorkloadID]unit.MilliCPU{"hog": 8000}
	for i := range 19 {
		demand[node.WorkloadID(fmt.Sprint("calm", i))] = 50
	}
	p := newPlant(3*time.Second, demand)
	for range 4 {
		p.second()
		for id := range p.state.Bounds {
			if id != "hog" {
				t.Errorf("%s is bounded", id)
			}
		}
	}
	if b := p.state.Bounds["hog"]; b.May > 2000 || b.Victim != "web" || b.Share < 80 {
		t.Errorf("the bound after four seconds is %+v", b)
	}
	p.demand["hog"] = 10
	for range 12 {
		p.second()
	}
	if len(p.state.Bounds) > 0 {
		t.Errorf("bounds of work that ended: %+v", p.state.Bounds)
	}
}

// TestWithoutAnObjectiveNothingIsBounded takes the objective of the service away.
func TestWithoutAnObjectiveNothingIsBounded(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 8000, "calm": 50})
	for range 4 {
		p.second()
	}
	if len(p.state.Bounds) != 1 {
		t.Fatalf("%+v", p.state)
	}
	p.leaves = true
	if p.second(); len(p.state.Bounds) > 0 {
		t.Errorf("bounds without an objective: %+v", p.state.Bounds)
	}
}

// TestAClockThatWasSetBackHoldsNoBound sets the clock back an hour, as a restart of
// the agent after a correction of the machine's clock does. A bound of idle work must
// go as soon as always, and one must grow when BE work is no longer to blame.
func TestAClockThatWasSetBackHoldsNoBound(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 8000, "calm": 50})
	for range 4 {
		p.second()
	}
	p.demand["hog"] = 10
	p.second()
	p.at, p.missed = p.at.Add(-time.Hour), p.missed.Add(-time.Hour)
	for range 12 {
		p.second()
	}
	if len(p.state.Bounds) > 0 {
		t.Errorf("a bound of idle work: %+v", p.state.Bounds)
	}

	p = newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 8000, "calm": 50})
	for range 4 {
		p.second()
	}
	least := p.state.Bounds["hog"].May
	p.at = p.at.Add(-time.Hour)
	p.others, p.helpless = 4*time.Second, true
	for range 12 {
		p.second()
	}
	if b := p.state.Bounds["hog"]; b.May <= least {
		t.Errorf("the bound stays %v at %v, while the service waits for other work: %+v", b.May, p.at, p.state.Searches)
	}
}

// TestKilledWorkHasNoBound ends a bounded job because memory is short. It needs CPU to
// give its memory back. One that was only asked to end may never do it.
func TestKilledWorkHasNoBound(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 8000, "calm": 50})
	for _, c := range []struct {
		ending node.Run
		bounds int
	}{{"", 1}, {node.AskedToEnd, 1}, {node.Ended, 0}} {
		p.ending = c.ending
		for range 2 {
			p.second()
		}
		if len(p.state.Bounds) != c.bounds {
			t.Errorf("%q: %+v", c.ending, p.state.Bounds)
		}
	}
}

// TestAnUnknownUseIsNotNone has a job whose CPU use cannot be read, before it is
// bounded and after.
func TestAnUnknownUseIsNotNone(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 6000, "calm": 2500, "other": 50})
	p.unread = "hog"
	if p.second(); len(p.state.Bounds) > 0 || !p.state.Alone("web") {
		t.Errorf("without the use of the one to blame: %+v", p.state)
	}
	p.unread = ""
	p.second()
	first := p.state.Bounds["hog"]
	if first.May != 3000 || len(p.state.Bounds) != 1 {
		t.Fatalf("with it: %+v", p.state.Bounds)
	}
	p.unread, p.weight["hog"], p.weight["calm"] = "hog", 0.5, 0
	for range 30 {
		p.second()
	}
	if b := p.state.Bounds["hog"]; b.May != first.May {
		t.Errorf("the bound was %v, and is %v", first.May, b.May)
	}
}

// TestACulpritThatIsReplacedIsKnown replaces the job each minute by another pod of
// the same controller. The level at which it failed is known then, so the service
// misses its objective in few windows after each replacement.
func TestACulpritThatIsReplacedIsKnown(t *testing.T) {
	p := newPlant(5*time.Second, map[node.WorkloadID]unit.MilliCPU{"calm": 100})
	p.owner = "CronJob/batch/train"
	for minute := range 10 {
		hog := node.WorkloadID(fmt.Sprint("hog", minute))
		p.demand[hog], p.weight[hog] = 12000, 1
		before := p.misses
		for range 60 {
			p.second()
		}
		if n := p.misses - before; n > 4 || minute > 1 && n > 2 {
			t.Errorf("minute %d: %d missed windows", minute, n)
		}
		if b := p.state.Bounds[hog]; b.May < 3000 || b.May > 5500 {
			t.Errorf("minute %d: the job may use %v, and 4900m would keep the objective", minute, b.May)
		}
		delete(p.demand, hog)
	}
	if p.second(); len(p.state.Bounds) > 0 || len(p.state.Levels) != 1 {
		t.Errorf("%+v", p.state)
	}
}

// TestAServiceThatIsReplacedIsKnown replaces the pod of the service each minute by another
// one of the same controller, beside a job that uses all CPUs that it gets. The level at
// which the job failed is known then, so each new pod misses its objective once.
func TestAServiceThatIsReplacedIsKnown(t *testing.T) {
	p := newPlant(5*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 12000, "calm": 100})
	p.webOwner = "ReplicaSet/shop/web"
	for minute := range 10 {
		p.web, p.missed = node.WorkloadID(fmt.Sprint("shop/web-", minute)), time.Time{}
		before := p.misses
		for range 60 {
			p.second()
		}
		if n := p.misses - before; minute > 1 && n > 2 {
			t.Errorf("minute %d: %d missed windows", minute, n)
		}
		if b := p.state.Bounds["hog"]; b.Victim != p.web || b.May < 3000 || b.May > 5500 {
			t.Errorf("minute %d: the job may use %+v, and 4900m would keep the objective", minute, b)
		}
	}
	if len(p.state.Levels) != 1 {
		t.Errorf("%+v", p.state.Levels)
	}
}

// TestPodsOfOneServiceAreOneLoad has two pods of one controller, for each of which a job is
// bounded. The level of both jobs moves with the use of both pods, and each once.
func TestPodsOfOneServiceAreOneLoad(t *testing.T) {
	at := time.Unix(1e6, 0)
	const service, owner = "ReplicaSet/shop/web", "Job/batch/train"
	st := State{
		Bounds: map[node.WorkloadID]Bound{"a": {May: 3000, Victim: "web-1", At: at, Since: at}, "b": {May: 3000, Victim: "web-2", At: at, Since: at}},
		Levels: map[Pair]Level{service + " " + owner: {May: 4000, Load: 3000, At: at, Probe: time.Hour}},
	}
	in := Input{Capacity: capacity, Use: facts.Use{Elapsed: time.Second, Workload: map[node.WorkloadID]unit.MilliCPU{"web-1": 1000, "web-2": 2000, "a": 3000, "b": 3000}}}
	in.SLO.Work = map[node.WorkloadID]slo.State{}
	for _, id := range []node.WorkloadID{"web-1", "web-2"} {
		web := node.Workload{ID: id, Class: node.LS, Owner: service}
		web.Objective.RunQueueDelay = node.Some(2 * time.Millisecond)
		in.Snapshot.Workloads = append(in.Snapshot.Workloads, web)
		in.SLO.Work[id] = slo.State{Of: slo.Of{Service: service}}
	}
	in.Snapshot.Workloads = append(in.Snapshot.Workloads, node.Workload{ID: "a", Class: node.BE, Owner: owner}, node.Workload{ID: "b", Class: node.BE, Owner: owner})
	for second := range 30 {
		at = at.Add(time.Second)
		if in.Snapshot.At = at; second == 10 {
			in.Use.Workload["web-1"] = 3000
		}
		st = st.Follow(in)
		l := st.Levels[service+" "+owner]
		if second < 10 && l.May != 4000 || second == 29 && (l.May >= 4000 || l.Load < 4500) {
			t.Fatalf("second %d: %+v, loads %v", second, l, st.Loads)
		}
	}
}

// TestFiftyServicesHalveABoundOnce has 50 services that wait for one job in the same
// second, and then again at times that differ.
func TestFiftyServicesHalveABoundOnce(t *testing.T) {
	at := time.Unix(1e6, 0)
	var st State
	miss := func(first, last int) {
		in := Input{Capacity: capacity, Use: facts.Use{Workload: map[node.WorkloadID]unit.MilliCPU{"hog": 8000}}, Snapshot: node.Snapshot{At: at}}
		in.Snapshot.Workloads = []node.Workload{{ID: "hog", Class: node.BE}, {ID: "calm", Class: node.BE}}
		in.SLO.Work = map[node.WorkloadID]slo.State{}
		waits := slo.Waits{Window: time.Second, Waited: time.Second, ByBE: time.Second, Runners: []slo.Runner{{ID: "hog", Cause: slo.ForBE, Time: time.Second}}}
		for i := range 50 {
			id := node.WorkloadID(fmt.Sprint("web", i))
			web := node.Workload{ID: id, Class: node.LS}
			web.Objective.RunQueueDelay = node.Some(2 * time.Millisecond)
			in.Snapshot.Workloads = append(in.Snapshot.Workloads, web)
			missed := at
			if i < first || i >= last {
				missed = at.Add(-time.Second / 2)
			}
			in.SLO.Work[id] = slo.State{Miss: slo.Miss{Workload: id, At: missed}, Judgement: slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, At: missed, Waits: waits}}
		}
		st = st.Follow(in)
	}
	miss(0, 50)
	if b := st.Bounds["hog"]; b.May != 4000 || len(st.Searches) != 50 {
		t.Fatalf("after the first second: %+v, %d searches", b, len(st.Searches))
	}
	for i := range 8 {
		at = at.Add(100 * time.Millisecond)
		miss(5*i, 5*i+5)
	}
	if b := st.Bounds["hog"]; b.May != 4000 {
		t.Errorf("within the next second: %+v", b)
	}
}

// TestABoundWithoutEffectIsTakenBack has a service that waits as long whatever its
// suspects use.
func TestABoundWithoutEffectIsTakenBack(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"a": 4000, "b": 4000, "c": 4000, "d": 10})
	seen := map[node.WorkloadID]bool{}
	for range 3*looks + 1 {
		for id := range p.demand { // what one loses, the service waits longer for it
			p.weight[id] = 4000 / float64(max(p.used(id), 1))
		}
		p.second()
		for id := range p.state.Bounds {
			seen[id] = true
		}
		if len(p.state.Bounds) > 1 {
			t.Errorf("several are bounded at once: %+v", p.state.Bounds)
		}
	}
	if len(seen) != 3 || len(p.state.Bounds) != 0 || p.state.Alone("web") {
		t.Errorf("suspects %v, bounds %+v, alone %v; want three, none left, and that all BE work gives way", seen, p.state.Bounds, p.state.Alone("web"))
	}
}

// TestASearchEndsWithoutBlame has a service that misses its objective for an hour,
// mostly for its own threads. In the first minute its waits were for batch work, and
// no bound helped. At the end it waits for one job.
func TestASearchEndsWithoutBlame(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"a": 4000, "b": 4000, "c": 4000, "d": 10})
	for range 3*looks + 1 {
		for id := range p.demand { // what one loses, the service waits longer for it
			p.weight[id] = 4000 / float64(max(p.used(id), 1))
		}
		p.second()
	}
	if p.state.Alone("web") {
		t.Fatalf("one is bounded: %+v", p.state)
	}
	p.others, p.helpless = 5*time.Second, true
	for range 3600 {
		p.second()
	}
	p.others, p.helpless = 0, false
	clear(p.weight)
	p.demand["a"], p.weight["a"] = 8000, 1
	p.second()
	if b := p.state.Bounds["a"]; b.May != 4000 || !p.state.Alone("web") {
		t.Errorf("%+v", p.state)
	}
}

// TestABoundThatGrewIsNotLowered gives a suspect back what it lost without an effect,
// after its bound has grown.
func TestABoundThatGrewIsNotLowered(t *testing.T) {
	x := follower{Input: Input{Snapshot: node.Snapshot{At: time.Unix(1e6, 0)}}}
	x.next.Bounds = map[node.WorkloadID]Bound{"hog": {May: 6000, Victim: "web"}}
	if x.liftBound("hog", 4000, "web"); x.next.Bounds["hog"].May != 6000 {
		t.Errorf("%+v", x.next.Bounds)
	}
}

// TestOthersKeepTheirCPUIfTheRestIsNotForBatchWork has a service that waits for a job
// and, longer than its objective allows, for work that is not BE.
func TestOthersKeepTheirCPUIfTheRestIsNotForBatchWork(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 8000, "calm": 100, "other": 100})
	p.others = 4 * time.Second
	for range 20 {
		p.second()
		if !p.state.Alone("web") {
			t.Fatalf("all BE work gives way: %+v", p.state)
		}
	}
	if b := p.state.Bounds["hog"]; b.May != Least || len(p.state.Bounds) != 1 {
		t.Errorf("%+v", p.state)
	}
}

func TestManyThatShareTheBlameAreNotSuspects(t *testing.T) {
	demand := map[node.WorkloadID]unit.MilliCPU{}
	for i := range 8 {
		demand[node.WorkloadID(fmt.Sprint("job", i))] = 1000
	}
	p := newPlant(3*time.Second, demand)
	for window := range spreadWindows {
		p.second()
		if last := window == spreadWindows-1; len(p.state.Bounds) > 0 || p.state.Alone("web") == last {
			t.Errorf("window %d: %+v", window, p.state)
		}
	}
}

// TestOnlyWindowsInARowCostAllBatchWork has many jobs with a part in the waits of a
// service that misses its objective for another reason in each third window.
func TestOnlyWindowsInARowCostAllBatchWork(t *testing.T) {
	demand := map[node.WorkloadID]unit.MilliCPU{}
	for i := range 8 {
		demand[node.WorkloadID(fmt.Sprint("job", i))] = 1000
	}
	p := newPlant(3*time.Second, demand)
	for window := range 30 {
		p.helpless = window%spreadWindows == spreadWindows-1
		if p.second(); len(p.state.Bounds) > 0 || !p.state.Alone("web") {
			t.Fatalf("window %d: %+v", window, p.state)
		}
	}
}

// TestSeveralToBlameGiveWayAlone has two or three jobs to blame, which are all bounded.
// Their bounds grow together, and fail together. That must not hide what the next bound
// does, so that all BE work gives way.
func TestSeveralToBlameGiveWayAlone(t *testing.T) {
	for name, demand := range map[string]map[node.WorkloadID]unit.MilliCPU{
		"two":             {"a": 6000, "b": 6000, "calm": 100},
		"three":           {"a": 5000, "b": 5000, "c": 5000, "calm": 100},
		"three that vary": {"a": 8000, "b": 4000, "c": 2000, "calm": 100},
	} {
		p := newPlant(5*time.Second, demand)
		for range 1200 {
			if p.second(); p.missed.Equal(p.at) && !p.state.Alone("web") {
				t.Fatalf("%s: all BE work gives way: %+v", name, p.state.Searches)
			}
			if _, bounded := p.state.Bounds["calm"]; bounded {
				t.Fatalf("%s: calm is bounded", name)
			}
		}
		t.Logf("%s: %d missed windows of 1200", name, p.misses)
		if p.misses > 60 {
			t.Errorf("%s: %d missed windows: the levels are not remembered", name, p.misses)
		}
	}
}

// TestOneTakesWhatTheOtherLoses has jobs that use all CPUs that they get. A bound of one
// of them alone changes nothing for the service, because another takes its CPU.
func TestOneTakesWhatTheOtherLoses(t *testing.T) {
	for name, c := range map[string]struct {
		demand map[node.WorkloadID]unit.MilliCPU
		most   int // missed windows of 600
		alone  bool
	}{
		"two":                     {map[node.WorkloadID]unit.MilliCPU{"a": 16000, "b": 16000, "calm": 100}, 10, true},
		"two beside others":       {map[node.WorkloadID]unit.MilliCPU{"a": 16000, "b": 16000, "calm": 1000, "calm2": 1000}, 15, true},
		"three":                   {map[node.WorkloadID]unit.MilliCPU{"a": 16000, "b": 16000, "c": 16000, "calm": 100}, 40, true},
		"more than are suspected": {map[node.WorkloadID]unit.MilliCPU{"a": 16000, "b": 16000, "c": 16000, "d": 16000}, 600, false},
	} {
		p := newPlant(10*time.Second, c.demand)
		p.room = 14000
		for range 600 {
			if p.second(); c.alone && p.missed.Equal(p.at) && !p.state.Alone("web") {
				t.Fatalf("%s: all BE work gives way: %+v", name, p.state.Searches)
			}
			for _, calm := range []node.WorkloadID{"calm", "calm2"} {
				if _, bounded := p.state.Bounds[calm]; bounded {
					t.Fatalf("%s: %s is bounded", name, calm)
				}
			}
		}
		if p.misses > c.most {
			t.Errorf("%s: %d missed windows of 600", name, p.misses)
		}
		if !c.alone && (len(p.state.Bounds) > 0 || p.state.Alone("web")) {
			t.Errorf("%s: %+v; want that all BE work gives way, and nothing besides", name, p.state)
		}
	}
}

// TestASingleBatchWorkloadIsNamed has one BE workload. It gives way like one of several: by
// a bound that names it, and that grows back to the level at which it failed.
func TestASingleBatchWorkloadIsNamed(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 8000})
	p.second()
	if b := p.state.Bounds["hog"]; b.May != 4000 || !p.state.Alone("web") {
		t.Errorf("%+v", p.state)
	}
	for range 600 {
		p.second()
	}
	if b := p.state.Bounds["hog"]; p.misses > 10 || b.May < 2000 {
		t.Errorf("%d missed windows of 600, and the bound is %+v", p.misses, b)
	}
}

// TestASingleBatchWorkloadWithoutABoundGivesWayAtOnce has one BE workload whose use is not
// known, so that it has no bound. There are no others to spare.
func TestASingleBatchWorkloadWithoutABoundGivesWayAtOnce(t *testing.T) {
	p := newPlant(3*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 8000})
	p.unread = "hog"
	if p.second(); len(p.state.Bounds) > 0 || p.state.Alone("web") {
		t.Errorf("%+v", p.state)
	}
}

// TestALevelThatFailedIsProbedRarely counts the missed windows of an hour. Without
// a memory, each return to the level would cost one.
func TestALevelThatFailedIsProbedRarely(t *testing.T) {
	p := newPlant(5*time.Second, map[node.WorkloadID]unit.MilliCPU{"hog": 12000, "calm": 100})
	var sum unit.MilliCPU
	for range 3600 {
		p.second()
		sum += p.used("hog")
	}
	mean := sum / 3600
	t.Logf("%d missed windows of 3600; the job used %v on average, 4900m would keep the objective", p.misses, mean)
	if p.misses > 36 || mean < 4900*80/100 {
		t.Errorf("%d missed windows, and the job used %v", p.misses, mean)
	}
}

// TestABoundForRequestsConverges counts the missed windows of an hour of a service that
// is judged by its requests, in windows of 15 s. A bound that grew within a window would
// show neither whether the objective is kept with it nor at which level it failed.
func TestABoundForRequestsConverges(t *testing.T) {
	for name, demand := range map[string]map[node.WorkloadID]unit.MilliCPU{
		"one":          {"hog": 12000, "calm": 100},
		"two":          {"a": 6000, "b": 6000, "calm": 100},
		"the only one": {"hog": 12000},
	} {
		p := newPlant(0, demand)
		var window slo.RequestState
		waits := map[node.WorkloadID]time.Duration{}
		misses, sum := 0, unit.MilliCPU(0)
		for second := range 3600 {
			p.at = p.at.Add(time.Second)
			web := node.Workload{ID: "web", Class: node.LS}
			web.Objective.Requests.Within[4] = 5 * time.Millisecond
			in := Input{Capacity: capacity, Use: facts.Use{Workload: map[node.WorkloadID]unit.MilliCPU{}}, Snapshot: node.Snapshot{At: p.at, Workloads: []node.Workload{web}}}
			for id := range demand {
				in.Snapshot.Workloads = append(in.Snapshot.Workloads, node.Workload{ID: id, Class: node.BE})
				in.Use.Workload[id] = p.used(id)
				waits[id] += time.Duration(p.used(id)) * time.Millisecond
				sum += p.used(id)
			}
			if second%15 == 14 {
				w := slo.Waits{Window: 15 * time.Second}
				for id, long := range waits {
					w.Runners, w.ByBE = append(w.Runners, slo.Runner{ID: id, Cause: slo.ForBE, Time: long}), w.ByBE+long
				}
				slices.SortFunc(w.Runners, func(a, b slo.Runner) int {
					return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.ID, b.ID))
				})
				w.Waited = w.ByBE
				window = slo.RequestState{From: node.Requests{At: p.at}}
				if w.Waited > 15*5*time.Second {
					misses++
					window.Miss = slo.Miss{Workload: "web", At: p.at, Percentile: "p99"}
					window.Judgement = slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, Begun: p.at.Add(-15 * time.Second), At: p.at, Waits: w}
				}
				clear(waits)
			}
			in.SLO.Requests = map[node.WorkloadID]slo.RequestState{"web": window}
			p.state = p.state.Follow(in)
		}
		t.Logf("%s: %d missed windows of 240; the jobs used %v on average, 5000m would keep the objective", name, misses, sum/3600)
		if misses > 12 || sum/3600 < 5000*80/100 {
			t.Errorf("%s: %d missed windows, and the jobs used %v", name, misses, sum/3600)
		}
	}
}

// TestFiftyServicesOfRequestsHalveABoundOnce has 50 services that wait for one job, each
// judged by its requests in windows that end at other times. A window in which the bound was
// halved for another service shows nothing about it.
func TestFiftyServicesOfRequestsHalveABoundOnce(t *testing.T) {
	begun := time.Unix(1e6, 0)
	var st State
	for second := range 40 {
		at := begun.Add(time.Duration(second) * time.Second)
		in := Input{Capacity: capacity, Use: facts.Use{Workload: map[node.WorkloadID]unit.MilliCPU{"hog": 8000}}, Snapshot: node.Snapshot{At: at}}
		in.Snapshot.Workloads = []node.Workload{{ID: "hog", Class: node.BE}, {ID: "calm", Class: node.BE}}
		in.SLO.Requests = map[node.WorkloadID]slo.RequestState{}
		waited := time.Second
		if b, bounded := st.Bounds["hog"]; bounded {
			waited = time.Duration(b.May) * time.Second / 8000
		}
		waits := slo.Waits{Window: 15 * time.Second, Waited: waited, ByBE: waited, Runners: []slo.Runner{{ID: "hog", Cause: slo.ForBE, Time: waited}}}
		for i := range 50 {
			id := node.WorkloadID(fmt.Sprint("web", i))
			web := node.Workload{ID: id, Class: node.LS}
			web.Objective.Requests.Within[4] = 5 * time.Millisecond
			in.Snapshot.Workloads = append(in.Snapshot.Workloads, web)
			missed := at.Add(-time.Duration((second+i)%15) * time.Second) // the end of its last window
			in.SLO.Requests[id] = slo.RequestState{
				From: node.Requests{At: missed}, Miss: slo.Miss{Workload: id, At: missed, Percentile: "p99"},
				Judgement: slo.Judgement{Verdict: slo.Missed, Cause: slo.ForBE, Begun: missed.Add(-15 * time.Second), At: missed, Waits: waits},
			}
		}
		st = st.Follow(in)
		want := unit.MilliCPU(4000) >> min(second/15, 2)
		if b := st.Bounds["hog"]; b.May != want {
			t.Fatalf("in second %d the bound is %v, want %v", second, b.May, want)
		}
	}
}

// TestABoundGoesWithoutAVerdict has a service that gets no more requests. Its windows
// last a minute, and have no verdict.
func TestABoundGoesWithoutAVerdict(t *testing.T) {
	at := time.Unix(1e6, 0)
	st := State{
		Bounds: map[node.WorkloadID]Bound{"hog": {May: 2000, Victim: "web", At: at, Since: at, Cut: at}},
		Levels: map[Pair]Level{"web hog": {May: 4000, At: at.Add(-time.Minute), Probe: time.Second}},
	}
	web := node.Workload{ID: "web", Class: node.LS}
	web.Objective.Requests.Within[4] = 5 * time.Millisecond
	window := slo.RequestState{From: node.Requests{At: at}, Judgement: slo.Judgement{Verdict: slo.Undecided, Cause: slo.TooFew}}
	for range 60 {
		at = at.Add(time.Second)
		st = st.Follow(Input{
			Capacity: capacity, Use: facts.Use{Workload: map[node.WorkloadID]unit.MilliCPU{"hog": min(st.Bounds["hog"].May, 12000)}},
			SLO:      slo.Tracker{Requests: map[node.WorkloadID]slo.RequestState{"web": window}},
			Snapshot: node.Snapshot{At: at, Workloads: []node.Workload{web, {ID: "hog", Class: node.BE}}},
		})
	}
	if b := st.Bounds["hog"]; b.May != 0 && b.May < 12000 {
		t.Errorf("after a minute: %+v", b)
	}
}

// TestBoundsStayInRange drives random plants, whose workloads come and go, and
// whose clock jumps.
func TestBoundsStayInRange(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 44))
		p := newPlant(time.Duration(r.IntN(6000))*time.Millisecond, map[node.WorkloadID]unit.MilliCPU{})
		for range 200 {
			id := node.WorkloadID(fmt.Sprint("job", r.IntN(6)))
			switch r.IntN(10) {
			case 0:
				delete(p.demand, id)
			case 1, 2:
				p.demand[id], p.weight[id] = unit.MilliCPU(r.IntN(16000)), r.Float64()
			case 3:
				p.at = p.at.Add(time.Duration(r.IntN(7200)-3600) * time.Second)
			}
			p.second()
			for id, b := range p.state.Bounds {
				if _, runs := p.demand[id]; !runs || b.May < Least || b.May >= capacity {
					t.Fatalf("seed %d: %s has %+v, runs %v", seed, id, b, runs)
				}
			}
			if len(p.state.Levels) > MaxLevels {
				t.Fatalf("%d levels", len(p.state.Levels))
			}
		}
	}
}

// TestABoundAboveTheOwnLimitIsNotInForce has a job that uses all of its own limit. Its
// bound grows back beyond this limit, and limits nothing from then on.
func TestABoundAboveTheOwnLimitIsNotInForce(t *testing.T) {
	for name, set := range map[string]func(*node.Snapshot){
		"its rule": func(s *node.Snapshot) { s.Workloads[0].CPULimit = node.Some[unit.MilliCPU](4000) },
		"before Tenon": func(s *node.Snapshot) {
			s.Knobs.Before[node.Knob{Cgroup: "be/hog", File: node.FileCPUMax}] = node.Limit(4000)
		},
	} {
		s := node.Snapshot{Workloads: []node.Workload{{ID: "hog", Class: node.BE, Cgroup: "be/hog"}, {ID: "free", Class: node.BE, Cgroup: "be/free"}}}
		s.Knobs.Before = map[node.Knob]node.Value{}
		s.Knobs.Now = map[node.Knob]node.Value{{Cgroup: "be/hog", File: node.FileCPUMax}: Limit(2000)}
		set(&s)
		for may, want := range map[unit.MilliCPU]int{2000: 2, 3999: 2, 4000: 1, 5000: 1} {
			st := State{Bounds: map[node.WorkloadID]Bound{"hog": {May: may, Victim: "web"}, "free": {May: 5000, Victim: "web"}}}
			if got := st.InForce(s); len(got) != want || len(st.Bounds) != 2 {
				t.Errorf("the limit of %s, with a bound of %v: in force are %+v", name, may, got)
			}
		}
	}
	if got := (State{}).InForce(node.Snapshot{}); got != nil {
		t.Errorf("without bounds: %+v", got)
	}
}

// TestABoundRunsForAMomentAtOnce checks the quota of a bound beside the limit that
// the owner of the work has set.
func TestABoundRunsForAMomentAtOnce(t *testing.T) {
	for _, c := range []struct {
		own     node.CPUMax
		may     unit.MilliCPU
		want    node.CPUMax
		tighter bool
	}{
		{node.CPUMax{}, Least, node.CPUMax{Quota: time.Millisecond, Period: 10 * time.Millisecond}, true},
		{node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}, 2500, node.CPUMax{Quota: 25 * time.Millisecond, Period: 10 * time.Millisecond}, true},
		{node.Limit(500), 200, node.CPUMax{Quota: 2 * time.Millisecond, Period: 10 * time.Millisecond}, true},
		{node.Limit(500), 500, node.Limit(500), false}, // it is the limit of its owner
		{node.LimitIn(100, 50*time.Millisecond), 200, node.LimitIn(100, 50*time.Millisecond), false},
	} {
		if got, tighter := (Bound{May: c.may}).Tighten(c.own); got != c.want || tighter != c.tighter {
			t.Errorf("%v with a bound of %v: %v, %v", c.own, c.may, got, tighter)
		}
	}
}
