package switchback

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// helps is the effect of two candidates. The second one is worse than the first.
var helps = map[node.Mechanism]float64{node.MechanismIdle: 0.5, node.MechanismSchedExt: 0.6}

// TestACandidateThatFailsLeavesWhatWasKept lets the second candidate fail while
// its trial runs. The first one must stay in use. The next round must try
// nothing but the second one, against the first one.
func TestACandidateThatFailsLeavesWhatWasKept(t *testing.T) {
	n := newScene(t, helps, node.MechanismIdle, node.MechanismSchedExt)
	n.advanceUntil(func(st State) bool { return st.Trial.Candidate == node.MechanismSchedExt })
	n.in.Failed = []node.Mechanism{node.MechanismSchedExt}
	n.ticks(1)
	n.in.Failed = nil
	if n.findings() != "cpu.idle kept, sched_ext failed" || n.st.Use() != node.MechanismIdle {
		t.Fatalf("%s; in use %q; %s", n.findings(), n.st.Use(), n.st.Why)
	}
	n.ticks(60)
	if next := n.st.Round.Add(roundInterval); !n.st.Shown().Next.Equal(next) || n.st.Why != "the trial of sched_ext failed: the next trials begin 6h0m0s after the last ones" {
		t.Errorf("the next round is at %v, want %v; %s", n.st.Shown().Next, next, n.st.Why)
	}
	for !n.st.Trial.running() {
		n.ticks(1)
	}
	if n.st.Trial.Candidate != node.MechanismSchedExt || n.st.Trial.Against != node.MechanismIdle || n.findings() != "cpu.idle kept" {
		t.Fatalf("%+v; %s", n.st.Trial, n.findings())
	}
	if n.advanceUntil(ended); n.findings() != "cpu.idle kept, sched_ext worse" || n.st.Use() != node.MechanismIdle {
		t.Errorf("%s; in use %q", n.findings(), n.st.Use())
	}
}

// TestACandidateThatWaitsAfterAFailureIsTriedLater begins a round in which the
// first candidate cannot be used for some minutes.
func TestACandidateThatWaitsAfterAFailureIsTriedLater(t *testing.T) {
	n := newScene(t, helps, node.MechanismIdle, node.MechanismSchedExt)
	n.in.Failed = []node.Mechanism{node.MechanismIdle}
	n.advanceUntil(func(st State) bool { return len(st.Results) == 1 }).ticks(10)
	if n.findings() != "sched_ext kept" || n.st.Why != "cpu.idle has failed and is tried again later" {
		t.Fatalf("%s; %s", n.findings(), n.st.Why)
	}
	n.in.Failed = nil
	if n.advanceUntil(ended); n.findings() != "sched_ext kept, cpu.idle kept" {
		t.Errorf("%s", n.findings())
	}
}

// TestCandidatesThatComeAndGoChangeNoFinding withdraws candidates and offers
// them again. A mechanism that was kept must stay so, and only a candidate about
// which nothing is known must cause another round.
func TestCandidatesThatComeAndGoChangeNoFinding(t *testing.T) {
	n := newScene(t, helps, node.MechanismIdle).advanceUntil(ended)
	round := n.st.Round
	n.in.Candidates = nil
	n.ticks(10)
	n.in.Candidates = []node.Mechanism{node.MechanismIdle}
	if n.ticks(7 * 3600); n.st.Use() != node.MechanismIdle || !n.st.Round.Equal(round) {
		t.Fatalf("in use %q; %s", n.st.Use(), n.st.Why)
	}
	n.in.Candidates = []node.Mechanism{node.MechanismIdle, node.MechanismSchedExt}
	if n.ticks(1); n.st.Use() != node.MechanismIdle || n.st.Why != "the node offers sched_ext now: trials begin when nothing has changed for 1m0s" {
		t.Errorf("in use %q; %s", n.st.Use(), n.st.Why)
	}
	if n.ticks(1800); n.findings() != "cpu.idle kept, sched_ext worse" {
		t.Errorf("%s", n.findings())
	}
}

// keepTheSecond returns a scene in which sched_ext was kept against the floor, and
// the trial of cpu.idle against it runs.
func keepTheSecond(t *testing.T) *scene {
	t.Helper()
	n := newScene(t, helps, node.MechanismIdle, node.MechanismSchedExt)
	n.in.Failed = []node.Mechanism{node.MechanismIdle}
	n.advanceUntil(func(st State) bool { return st.Kept == node.MechanismSchedExt })
	n.in.Failed = nil
	return n.advanceUntil(func(st State) bool { return len(st.Trial.Logs) == 2 })
}

// TestATrialEndsIfTheMechanismInUseFails lets the mechanism fail with which a
// candidate is compared. In its place the floor is in use.
func TestATrialEndsIfTheMechanismInUseFails(t *testing.T) {
	n := keepTheSecond(t)
	n.in.Down = true
	if n.ticks(600); n.findings() != "sched_ext kept, cpu.idle failed" || n.st.Trial.running() || n.st.Kept != node.MechanismSchedExt {
		t.Errorf("%s; %+v", n.findings(), n.st)
	}
	n.ticks(6 * 3600)
	if n.st.Trial.running() || n.st.Why != "sched_ext has failed and is in use again later" {
		t.Errorf("a trial begins against a mechanism that is not in use: %s", n.st.Why)
	}
	n.in.Down = false
	if n.advanceUntil(ended); n.findings() != "sched_ext kept, cpu.idle kept" {
		t.Errorf("%s", n.findings())
	}
}

// TestWhatWasFoundEndsWithTheMechanismThatWasKept withdraws the mechanism that
// was kept. The others were compared with it, so they are tried again.
func TestWhatWasFoundEndsWithTheMechanismThatWasKept(t *testing.T) {
	n := keepTheSecond(t)
	n.in.Candidates, n.in.Lost = []node.Mechanism{node.MechanismIdle}, "another scheduler is loaded"
	if n.ticks(1); n.st.Use() != "" || !strings.HasPrefix(n.st.Why, "the node does not offer sched_ext any more: another scheduler is loaded: ") {
		t.Errorf("in use %q; %s", n.st.Use(), n.st.Why)
	}
	n.in.Lost = ""
	if n.ticks(7 * 3600); n.st.Use() != node.MechanismIdle || n.findings() != "cpu.idle kept" {
		t.Errorf("in use %q: %s", n.st.Use(), n.findings())
	}
}

// TestAJobChangesNoFinding starts pods of Jobs during a trial and after it, such
// as the job that uninstalls Tenon. The trial must go on, and what was found must
// hold. A service of the same name is new.
func TestAJobChangesNoFinding(t *testing.T) {
	n := newScene(t, helps, node.MechanismIdle)
	n.advanceUntil(func(st State) bool { return st.Trial.running() }).ticks(20)
	n.in.Workloads["tenon-system/tenon-uninstall-x7k2p"] = Count{}
	n.in.Passing = []string{"tenon-system/tenon-uninstall-x7k2p"}
	if n.ticks(1); !n.st.Trial.running() {
		t.Fatalf("the trial has ended: %s", n.st.Why)
	}
	if n.advanceUntil(ended); n.findings() != "cpu.idle kept" {
		t.Fatalf("%s", n.findings())
	}
	for _, job := range []string{"ci/build-41", "ci/build-42-9xqzt", "ci/build-43"} {
		n.in.Workloads[job] = Count{}
		n.in.Passing = append([]string{job}, n.in.Passing...)
		slices.Sort(n.in.Passing)
	}
	if n.ticks(10); n.st.Use() != node.MechanismIdle || n.st.Due || slices.Contains(n.st.Names, "ci/build") {
		t.Errorf("in use %q, another round is due: %t: %s; names %q", n.st.Use(), n.st.Due, n.st.Why, n.st.Names)
	}
	n.in.Workloads["ci/build-7d9f8c6b5-abcde"] = Count{}
	if n.ticks(1); n.st.Use() != "" || !n.st.Due {
		t.Errorf("after a new service, %q is in use: %s", n.st.Use(), n.st.Why)
	}
}

// TestATrialWithoutDataIsRepeated ends BE in the middle of a trial, and starts
// it again the next night.
func TestATrialWithoutDataIsRepeated(t *testing.T) {
	n := newScene(t, helps, node.MechanismIdle).ticks(240)
	n.in.BE = false
	n.ticks(2 * 3600)
	if n.findings() != "cpu.idle failed" || n.st.Use() != "" {
		t.Fatalf("%s; in use %q", n.findings(), n.st.Use())
	}
	n.ticks(5 * 3600)
	n.in.BE = true
	if n.advanceUntil(func(st State) bool { return st.Kept != "" }); n.findings() != "cpu.idle kept" {
		t.Errorf("%s", n.findings())
	}
}

// TestAnotherMechanismThatNeedsNoTrialBeginsAnew changes the mechanism with which
// the first candidate was compared.
func TestAnotherMechanismThatNeedsNoTrialBeginsAnew(t *testing.T) {
	n := newScene(t, helps, node.MechanismSchedExt).advanceUntil(ended)
	n.in.Base = node.MechanismIdle
	if n.ticks(1); n.st.Kept != "" || !n.st.Due || !strings.HasPrefix(n.st.Why, "the configuration changes the mechanism that needs no trial") {
		t.Errorf("%+v", n.st)
	}
}

// TestPlacesOfServices checks which changes of the CPUs of services end a
// finding.
// TestWhatEndsByItselfHasNoPlace checks which workloads count as services.
func TestWhatEndsByItselfHasNoPlace(t *testing.T) {
	s := node.Snapshot{Workloads: []node.Workload{
		{ID: "a/web-0", Class: node.LS}, {ID: "a/job-b", Class: node.LS, Passing: true}, {ID: "a/job-a", Class: node.LSR, Passing: true},
	}}
	if places := PlacesOf(s, func(*node.Workload) unit.CPUSet { return unit.CPUSet{} }); len(places) != 1 || places[0].Service != "a/web" {
		t.Errorf("%v", places)
	}
	if got := PassingOf(s); !slices.Equal(got, []string{"a/job-a", "a/job-b"}) {
		t.Errorf("%q", got)
	}
}

func TestPlacesOfServices(t *testing.T) {
	at := func(service string, shape uint64) Place { return Place{service, shape} }
	steps := []struct {
		places []Place
		moved  string
	}{
		{[]Place{at("db", 7)}, ""},
		{nil, ""},                                // its only replica restarts
		{[]Place{at("db", 7)}, ""},               // on other CPUs of the same shape
		{[]Place{at("db", 7), at("web", 0)}, ""}, // web runs now
		{[]Place{at("db", 0), at("web", 0)}, "db"},
		{[]Place{at("db", 7), at("web", 0)}, "db"}, // its first place no longer counts
		{[]Place{at("db", 7), at("db", 9), at("web", 0)}, "db"},
		{[]Place{at("db", 9), at("web", 0)}, ""},
		{[]Place{at("db", 7), at("web", 0)}, ""},
		{[]Place{at("db", 7), at("web", 3)}, "web"},
	}
	n := newScene(t, helps, node.MechanismIdle).ticks(1)
	for i, x := range steps {
		n.in.Places, n.st.What = x.places, ""
		want := ""
		if x.moved != "" {
			want = "the CPUs of the service " + x.moved + " have changed"
		}
		if n.ticks(2); n.st.What != want {
			t.Errorf("step %d: %q, want %q", i, n.st.What, want)
		}
	}
}

// TestReplicasOfTheSameShapeHaveOnePlace binds services to CPUs.
func TestReplicasOfTheSameShapeHaveOnePlace(t *testing.T) {
	s := node.Snapshot{}
	for cpu := range 16 { // two caches of four cores
		s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(cpu), Core: node.CoreID(cpu / 2), L3: node.CacheID(cpu / 8)})
	}
	set := func(text string) unit.CPUSet {
		v, err := unit.ParseCPUSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	places := func(sets ...string) []Place {
		s.Workloads = nil
		for i, text := range sets {
			s.Workloads = append(s.Workloads, node.Workload{ID: node.WorkloadID(text), Container: fmt.Sprintf("default/web-7d4b9c6f5d-x2k8%c", "bcdf"[i]), Class: node.LSR})
		}
		return PlacesOf(s, func(w *node.Workload) unit.CPUSet { return set(string(w.ID)) })
	}
	for _, c := range []struct {
		sets []string
		want int
	}{
		{[]string{"0-3"}, 1}, {[]string{"0-3", "4-7", "8-11", "12-15"}, 1}, {[]string{"0-3", "0-1,8-9"}, 2}, {[]string{"0-3", "0,2,4,6"}, 2}, {[]string{"0-15", "0-3"}, 2},
	} {
		got := places(c.sets...)
		if len(got) != c.want || got[0].Service != "default/web" {
			t.Errorf("%s: %+v, want %d places", c.sets, got, c.want)
		}
	}
	if got := places("0-15"); got[0].Shape != 0 {
		t.Errorf("all CPUs of the node have the shape %d, want 0", got[0].Shape)
	}
}
