package switchback

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
)

// A scene is a node on which trials run. Its time advances in ticks of a
// second.
type scene struct {
	t      *testing.T
	in     Input
	st     State
	effect map[node.Mechanism]float64
	used   []node.Mechanism // the mechanism in use in each tick
}

func newScene(t *testing.T, effects map[node.Mechanism]float64, candidates ...node.Mechanism) *scene {
	return &scene{t: t, effect: effects, in: Input{
		At: time.Unix(5000, 0), Candidates: candidates, Workloads: map[string]Count{"web": {}}, BE: true, InForce: true,
	}}
}

// ticks advances the time by a number of seconds. Each service waits 100 times
// a second, for 10 µs each, unless a mechanism changes that. After each tick
// the state is written as JSON and read back, as in a record.
func (n *scene) ticks(seconds int) *scene {
	n.t.Helper()
	for range seconds {
		effect, is := n.effect[n.st.Use()]
		if !is {
			effect = 1
		}
		// The epochs must differ a little. Without differences, the variance
		// would be 0.
		wobble := 1 + float64(n.in.At.Unix()%7)/100
		services := map[string]Count{}
		for name, c := range n.in.Workloads {
			services[name] = Count{Waits: c.Waits + 100, Waited: c.Waited + time.Duration(1e6*effect*wobble)}
		}
		n.in.Workloads, n.in.At = services, n.in.At.Add(time.Second)
		before, err := json.Marshal(n.st)
		if err != nil {
			n.t.Fatal(err)
		}
		next := n.st.Follow(n.in)
		if after, _ := json.Marshal(n.st); string(after) != string(before) {
			n.t.Fatalf("Follow changes the state that it gets:\n%s\n%s", before, after)
		}
		text, err := json.Marshal(next)
		if err != nil {
			n.t.Fatal(err)
		}
		n.st = State{}
		if err := json.Unmarshal(text, &n.st); err != nil {
			n.t.Fatal(err)
		}
		n.used = append(n.used, n.st.Use())
	}
	return n
}

// advanceUntil advances the time until the function what returns true, but at
// most by an hour.
func (n *scene) advanceUntil(what func(State) bool) *scene {
	n.t.Helper()
	for range 3600 {
		if n.ticks(1); what(n.st) {
			return n
		}
	}
	n.t.Fatalf("it never happens; %s", n.st.Why)
	return n
}

func ended(st State) bool { return len(st.Results) > 0 && !st.Trial.running() && len(st.Left) == 0 }

func (n *scene) findings() string {
	var all []string
	for _, r := range n.st.Results {
		all = append(all, fmt.Sprintf("%s %s", r.Candidate, r.Finding))
	}
	return strings.Join(all, ", ")
}

func TestACandidateThatHelpsIsKept(t *testing.T) {
	n := newScene(t, map[node.Mechanism]float64{node.MechanismIdle: 0.5}, node.MechanismIdle).advanceUntil(ended)
	if n.findings() != "cpu.idle kept" || n.st.Use() != node.MechanismIdle {
		t.Errorf("%s; in use %q", n.findings(), n.st.Use())
	}
	r := n.st.Results[0]
	if r.Pairs != keptFrom || r.Ratio < 0.45 || r.Ratio > 0.55 || r.Low >= r.Ratio || r.High <= r.Ratio || r.High >= 1 {
		t.Errorf("%+v", r)
	}
	s := r.Services[0]
	if s.Name != "web" || s.HourWithout < 3600*time.Millisecond || s.HourWithout > 3900*time.Millisecond || s.HourWith > s.HourWithout*6/10 {
		t.Errorf("%+v", s)
	}
	if got, is := n.st.Shown().InForce(); !is || got.Candidate != node.MechanismIdle {
		t.Errorf("in force: %+v, %v", got, is)
	}
	n.ticks(7 * 3600)
	if n.st.Trial.running() || len(n.st.Results) != 1 || n.st.Use() != node.MechanismIdle {
		t.Errorf("nothing has changed, and it tries again: %+v", n.st)
	}
}

func TestATieAndAHarmKeepTheFloor(t *testing.T) {
	for effect, want := range map[float64]string{1: "cpu.idle no gain", 1.5: "cpu.idle worse"} {
		n := newScene(t, map[node.Mechanism]float64{node.MechanismIdle: effect}, node.MechanismIdle).advanceUntil(ended)
		if n.findings() != want || n.st.Use() != "" {
			t.Errorf("%g: %s; in use %q", effect, n.findings(), n.st.Use())
		}
	}
}

// TestEachCandidateIsTriedAgainstTheBest checks a round with two candidates. If
// the first one was kept, the second one must be compared with it.
func TestEachCandidateIsTriedAgainstTheBest(t *testing.T) {
	n := newScene(t, map[node.Mechanism]float64{node.MechanismIdle: 0.6, node.MechanismSiblings: 0.9, node.MechanismSchedExt: 0.3},
		node.MechanismIdle, node.MechanismSiblings, node.MechanismSchedExt).advanceUntil(ended)
	if n.findings() != "cpu.idle kept, siblings worse, sched_ext kept" || n.st.Use() != node.MechanismSchedExt {
		t.Errorf("%s; in use %q", n.findings(), n.st.Use())
	}
	if r := n.st.Results[2]; r.Against != node.MechanismIdle {
		t.Errorf("sched_ext was compared with %q", r.Against)
	}
}

func TestAMissedObjectiveEndsATrialAtOnce(t *testing.T) {
	with := func(st State) bool { return st.Trial.usesCandidate() }
	n := newScene(t, nil, node.MechanismIdle).advanceUntil(with)
	n.in.Missed = "web waits up to 8ms"
	n.ticks(1)
	if n.findings() != "cpu.idle stopped" || n.st.Use() != "" || n.st.Results[0].Why != "an objective is missed: web waits up to 8ms" {
		t.Errorf("%s; %+v", n.findings(), n.st.Results)
	}
}

// TestAnObjectiveThatIsMissedWithoutTheCandidateHoldsTheTrial misses an
// objective while the candidate is not in use. The trial must not blame the
// candidate for this, and must not use it meanwhile.
func TestAnObjectiveThatIsMissedWithoutTheCandidateHoldsTheTrial(t *testing.T) {
	without := func(st State) bool { return st.Trial.running() && !st.Trial.usesCandidate() && len(st.Trial.Logs) > 0 }
	n := newScene(t, map[node.Mechanism]float64{node.MechanismIdle: 0.5}, node.MechanismIdle).advanceUntil(without)
	n.in.Missed = "web waits"
	n.used = nil
	n.ticks(120)
	for _, m := range n.used {
		if m != "" {
			t.Fatalf("%s is used while an objective is missed", m)
		}
	}
	n.in.Missed = ""
	if n.advanceUntil(ended); n.findings() != "cpu.idle kept" {
		t.Errorf("%s", n.findings())
	}
}

// TestWhatWasFoundEndsWithANewService starts a new service. The floor must be
// in use again at once. The next round must begin at the earliest six hours
// after the last one.
func TestWhatWasFoundEndsWithANewService(t *testing.T) {
	n := newScene(t, map[node.Mechanism]float64{node.MechanismIdle: 0.5}, node.MechanismIdle).advanceUntil(ended)
	round := n.st.Round
	n.in.Workloads["db"] = Count{}
	if n.ticks(1); n.st.Use() != "" || !strings.HasPrefix(n.st.Why, "the service db is new") {
		t.Errorf("in use %q; %s", n.st.Use(), n.st.Why)
	}
	if want := round.Add(roundInterval); !n.st.Shown().Next.Equal(want) {
		t.Errorf("next round at %v, want %v", n.st.Shown().Next, want)
	}
	for !n.st.Trial.running() {
		n.ticks(1)
	}
	if n.st.Round.Sub(round) < roundInterval {
		t.Errorf("the next round began after %v", n.st.Round.Sub(round))
	}
	n.advanceUntil(ended)
	if n.st.Use() != node.MechanismIdle || len(n.st.Results) != 1 || len(n.st.Results[0].Services) != 2 {
		t.Errorf("in use %q; %+v", n.st.Use(), n.st.Results)
	}
	delete(n.in.Workloads, "db")
	if n.ticks(1); n.st.Use() != node.MechanismIdle {
		t.Error("a service that ends changes what was found")
	}
	n.in.CPUs++
	if n.ticks(1); n.st.Use() != "" {
		t.Error("other CPUs, and the mechanism is still in use")
	}
}

func TestAServiceThatComesEndsTheTrial(t *testing.T) {
	n := newScene(t, nil, node.MechanismIdle, node.MechanismSiblings).advanceUntil(func(st State) bool { return len(st.Trial.Logs) == 3 })
	n.in.Workloads["db"] = Count{}
	n.ticks(1)
	if n.findings() != "cpu.idle failed" || n.st.Trial.running() || len(n.st.Left) > 0 || n.st.Use() != "" {
		t.Errorf("%s; %+v", n.findings(), n.st)
	}
}

func TestAMechanismThatDoesNotComeIntoForceFails(t *testing.T) {
	n := newScene(t, nil, node.MechanismIdle).advanceUntil(func(st State) bool { return st.Trial.usesCandidate() })
	n.in.InForce = false
	if n.ticks(31); n.findings() != "cpu.idle failed" || n.st.Use() != "" {
		t.Errorf("%s; %s", n.findings(), n.st.Why)
	}
}

// TestNothingIsTriedInVain checks the conditions without which no trial may
// begin.
func TestNothingIsTriedInVain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		why    string
	}{
		"no service":    {func(in *Input) { in.Workloads = nil }, "the waits of no service are counted"},
		"no BE":         {func(in *Input) { in.BE = false }, "no best-effort work runs"},
		"no candidate":  {func(in *Input) { in.Candidates = nil }, "no other mechanism can help here"},
		"switched off":  {func(in *Input) { in.Off = "trials are off" }, "trials are off"},
		"not yet calm":  {func(in *Input) { in.CPUs = uint64(in.At.Unix()) }, "the CPUs of the node have changed: trials begin when nothing has changed for 1m0s"},
		"a missed goal": {func(in *Input) { in.Missed = "web waits" }, "an objective is missed: web waits"},
	} {
		n := newScene(t, nil, node.MechanismIdle)
		for range 200 {
			c.change(&n.in)
			n.ticks(1)
		}
		if n.st.Trial.running() || n.st.Why != c.why {
			t.Errorf("%s: %+v", name, n.st)
		}
	}
}

// TestTheSameTimesGiveTheSameOrder checks that the order of the epochs depends
// only on the input, and differs between pairs.
func TestTheSameTimesGiveTheSameOrder(t *testing.T) {
	a := newScene(t, nil, node.MechanismIdle).ticks(600)
	b := newScene(t, nil, node.MechanismIdle).ticks(600)
	if diff := cmp.Diff(a.used, b.used); diff != "" {
		t.Error(diff)
	}
	first := map[bool]int{}
	for pair := range 64 {
		first[Trial{Candidate: "x", Seed: 7, Pair: pair}.usesCandidate()]++
		if (Trial{Candidate: "x", Seed: 7, Pair: pair}).usesCandidate() == (Trial{Candidate: "x", Seed: 7, Pair: pair, Second: true}).usesCandidate() {
			t.Fatal("both epochs of a pair are the same")
		}
	}
	if first[true] < 20 || first[false] < 20 {
		t.Errorf("the candidate is first in %d of 64 pairs", first[true])
	}
}

func TestPodsOfOneWorkloadAreOneService(t *testing.T) {
	for id, want := range map[string]string{
		"default/web-7d4b9c6f5d-x2k8p": "default/web", "default/web-7d4b9c6f5d-bbbbb": "default/web",
		"kube-system/node-exporter-zx7kd": "kube-system/node-exporter", "default/db-0": "default/db", "default/db-12": "default/db",
		"default/backup-29345678-x2k8p": "default/backup", "default/backup-29456789-x2k8p": "default/backup",
		"default/front-end": "default/front-end", "default/web": "default/web",
		"system.slice/nginx.service": "system.slice/nginx.service", "a-bcdfg/web": "a-bcdfg/web",
		"tenon-ls/api-71": "tenon-ls/api", "tenon-ls/api-1234567": "tenon-ls/api", "default/report-20261128": "default/report-20261128", "-bcdfg": "-bcdfg",
	} {
		if got := ServiceName(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}

// TestABusierEpochIsNotAWorseOne lets one kind of service run more in one epoch
// of a pair. The ratio must stay the same.
func TestABusierEpochIsNotAWorseOne(t *testing.T) {
	without := map[string]Count{"short": {Waits: 1000, Waited: 1e6}, "long": {Waits: 100, Waited: 1e7}}
	with := map[string]Count{"short": {Waits: 1000, Waited: 1e6}, "long": {Waits: 900, Waited: 9e7}, "new": {Waits: 50, Waited: 1e9}}
	all, one, ok := PairOf(without, with)
	if !ok || all < -0.001 || all > 0.001 || len(one) != 2 {
		t.Errorf("log %v, %v, %v", all, one, ok)
	}
}

// TestAnEpochWithThrottlingIsNotCounted throttles a service in an epoch. The
// kernel counts that as waiting. The epoch must count for the other services, and
// for a service of whose waiting throttling is only a small part.
func TestAnEpochWithThrottlingIsNotCounted(t *testing.T) {
	usage := func(waits uint64, waited, throttled time.Duration) node.Usage {
		return node.Usage{Throttled: node.Some(throttled), Delay: node.RunQueueDelay{Sum: node.Some(waited), Counts: []uint64{waits}}}
	}
	read := func(web, db, api node.Usage) map[string]Count {
		return CountsOf(node.Snapshot{Workloads: []node.Workload{
			{ID: "web", Class: node.LS, Usage: web}, {ID: "db", Class: node.LS, Usage: db}, {ID: "api", Class: node.LS, Usage: api},
		}})
	}
	before := read(usage(10, time.Second, time.Hour), usage(10, time.Second, time.Hour), usage(10, time.Second, 0))
	after := read(usage(50, 5*time.Second, time.Hour+time.Second), usage(50, 5*time.Second, time.Hour+time.Millisecond), usage(50, 5*time.Second, 0))
	got := WaitsBetween(before, after)
	if _, counts := got["web"]; counts || len(got) != 2 || got["db"].Waited != 4*time.Second || got["api"].Waits != 40 {
		t.Errorf("waits %+v", got)
	}
}

// TestMostEpochsDoNotOutvoteAFewBadOnes judges trials in which each pair has a
// fifth less waiting with the candidate. In some of these trials the sum over
// all epochs is not smaller, because a few epochs are bad.
func TestMostEpochsDoNotOutvoteAFewBadOnes(t *testing.T) {
	trialOf := func(pairs int, with time.Duration) State {
		logs := make([]int, pairs)
		for i := range logs {
			logs[i] = -223 + i%3
		}
		web := Tally{Without: Count{Waits: 1000, Waited: 20 * time.Millisecond}, With: Count{Waits: 1000, Waited: with}}
		web.Pairs, web.Sum, web.Squares = pairs, -0.223*float64(pairs), 0.223*0.223*float64(pairs)
		return State{Trial: Trial{Candidate: node.MechanismIdle, Logs: logs, By: map[string]Tally{"web": web}, CountedTime: time.Minute}}
	}
	const less, more = 16 * time.Millisecond, 25 * time.Millisecond
	for _, c := range []struct {
		pairs int
		with  time.Duration
		want  trial.Finding // empty: the trial goes on
	}{
		{keptFrom, less, trial.Kept}, {keptFrom, more, ""}, {keptFrom / 2, less, ""}, {rule().Last(), more, trial.NoGain}, {rule().Last(), less, trial.Kept},
	} {
		st := trialOf(c.pairs, c.with).look(Input{})
		if c.want == "" && !st.Trial.running() || c.want != "" && (len(st.Results) != 1 || st.Results[0].Finding != c.want) {
			t.Errorf("%d pairs, %v with the candidate: %+v, want %q", c.pairs, c.with, st.Results, c.want)
		}
	}
}
