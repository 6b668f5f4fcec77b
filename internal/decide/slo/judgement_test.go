package slo

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A scene makes the snapshots of a node with the service web, which wants 2 ms.
type scene struct {
	tracker Tracker
	snap    node.Snapshot
}

func newScene() *scene {
	web := node.Workload{ID: "shop/web", Class: node.LS}
	web.Objective.RunQueueDelay = node.Some(2 * time.Millisecond)
	web.Usage.Delay = node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, kernelBuckets)}
	s := &scene{snap: node.Snapshot{At: time.Unix(1000, 0), Workloads: []node.Workload{
		web, {ID: "batch/train", Class: node.BE}, {ID: "batch/spin", Class: node.BE}, {ID: "shop/db", Class: node.LS}, {ID: "kube/dns", Class: node.System},
	}}}
	s.tracker = s.tracker.Observe(s.snap)
	return s
}

// second lets a second pass in which web waits n times for a length, while the
// given runners run.
func (s *scene) second(n uint64, length time.Duration, runners map[node.WorkloadID]time.Duration) Judgement {
	s.snap.At = s.snap.At.Add(time.Second)
	u := &s.snap.Workloads[0].Usage
	if d := &u.Delay; d.Counts != nil {
		d.Counts = slices.Clone(d.Counts)
		b := 0
		for length >= node.DelayBound(b) {
			b++
		}
		d.Counts[b] += n
		d.Sum = node.Some(d.Sum.Or(0) + time.Duration(n)*length)
	}
	waits := map[node.WorkloadID]time.Duration{}
	for _, w := range s.snap.Waits {
		waits[w.Runner] = w.Time
	}
	s.snap.Waits = nil
	for id, t := range runners {
		waits[id] += t
	}
	for _, id := range slices.Sorted(maps.Keys(waits)) {
		s.snap.Waits = append(s.snap.Waits, node.Wait{Waiter: "shop/web", Runner: id, Time: waits[id]})
	}
	s.tracker = s.tracker.Observe(s.snap)
	return s.judgement()
}

func (s *scene) judgement() Judgement { return s.tracker.Judgements(s.snap)["shop/web"] }

// TestAMissNamesItsCause lets a service wait for different work.
func TestAMissNamesItsCause(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		runners map[node.WorkloadID]time.Duration
		want    Cause
		first   node.WorkloadID
	}{
		"two batch pods":   {map[node.WorkloadID]time.Duration{"batch/train": 800 * ms, "batch/spin": 200 * ms, "shop/db": 100 * ms}, ForBE, "batch/train"},
		"ended batch work": {map[node.WorkloadID]time.Duration{node.RestOf(node.BE): 900 * ms}, ForBE, node.RestOf(node.BE)},
		"less for BE":      {map[node.WorkloadID]time.Duration{"batch/train": 450 * ms, "shop/web": 550 * ms}, OwnThreads, "shop/web"},
		"as much for BE":   {map[node.WorkloadID]time.Duration{"batch/train": 500 * ms, "shop/web": 500 * ms}, ForBE, "batch/train"},
		"BE and the rest":  {map[node.WorkloadID]time.Duration{"batch/train": 60 * ms, node.RunnerIdle: 940 * ms}, ForBE, node.RunnerIdle},
		"its own threads":  {map[node.WorkloadID]time.Duration{"batch/train": 20 * ms, "shop/web": 980 * ms}, OwnThreads, "shop/web"},
		"another service":  {map[node.WorkloadID]time.Duration{"shop/db": 900 * ms, "shop/web": 100 * ms}, OtherService, "shop/db"},
		"the system":       {map[node.WorkloadID]time.Duration{node.RunnerKernel: 400 * ms, node.RunnerOthers: 300 * ms, "kube/dns": 300 * ms, "shop/db": 500 * ms}, System, "shop/db"},
		"no thread":        {map[node.WorkloadID]time.Duration{node.RunnerIdle: 900 * ms, node.RunnerElsewhere: 90 * ms}, Unclear, node.RunnerIdle},
		"not known":        {nil, UnknownRunner, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.second(1000, 100*time.Microsecond, map[node.WorkloadID]time.Duration{"shop/web": ms})
			if name == "not known" {
				s.snap.Waits = nil
				s = newScene()
			}
			j := s.second(100, 9*ms, c.runners)
			if j.Verdict != Missed || j.Cause != c.want || j.Tail < 9*ms || j.Since != s.snap.At {
				t.Errorf("%+v, want a miss because of %s", j, c.want)
			}
			if c.first != "" && (len(j.Runners) == 0 || j.Runners[0].ID != c.first) {
				t.Errorf("runners %+v, want %s first", j.Runners, c.first)
			}
			begun := j.Since
			if j = s.second(100, 9*ms, c.runners); j.Since != begun {
				t.Errorf("the miss began at %v, and a second later at %v", begun, j.Since)
			}
			for range 12 {
				j = s.second(1000, 100*time.Microsecond, nil)
			}
			if j.Verdict != Kept || j.Cause != "" || len(j.Runners) > 0 || !j.Since.After(begun) {
				t.Errorf("after twelve calm seconds: %+v", j)
			}
		})
	}
}

// TestAClockThatWasSetBackEndsTheBlame sets the clock back an hour, as a restart of
// the agent after a correction of the machine's clock does.
func TestAClockThatWasSetBackEndsTheBlame(t *testing.T) {
	s := newScene()
	s.second(10, time.Microsecond, nil)
	s.second(100, 9*time.Millisecond, map[node.WorkloadID]time.Duration{"batch/train": 900 * time.Millisecond})
	s.snap.At = s.snap.At.Add(-time.Hour)
	var j Judgement
	for range 2 + blameStays/time.Second {
		j = s.second(100, 9*time.Millisecond, map[node.WorkloadID]time.Duration{"shop/web": 900 * time.Millisecond})
	}
	if j.Cause != OwnThreads {
		t.Errorf("the cause is %s at %v, now it is %v", j.Cause, j.At, s.snap.At)
	}
}

// TestBlameStaysForAReport lets BE give way after a miss. The service then waits
// for its own threads. For some time, the verdict must still say why BE gave way.
func TestBlameStaysForAReport(t *testing.T) {
	s := newScene()
	self := map[node.WorkloadID]time.Duration{"shop/web": 900 * time.Millisecond}
	s.second(10, time.Microsecond, nil)
	s.second(100, 9*time.Millisecond, map[node.WorkloadID]time.Duration{"batch/train": 900 * time.Millisecond})
	for i := range 20 {
		j := s.second(100, 9*time.Millisecond, self)
		want, first := ForBE, node.WorkloadID("batch/train")
		if time.Duration(i+1)*time.Second >= blameStays {
			want, first = OwnThreads, "shop/web"
		}
		if j.Verdict != Missed || j.Cause != want || j.Runners[0].ID != first {
			t.Fatalf("%d s after BE gave way: %+v, want the cause %s", i+1, j, want)
		}
	}
	if m := s.tracker.Violations(); len(m) != 1 || !m[0].Helpless {
		t.Errorf("BE still gives way: %+v", m)
	}
}

// TestNoVerdictSaysWhy checks that an objective without a verdict counts neither
// as kept nor as missed.
func TestNoVerdictSaysWhy(t *testing.T) {
	s := newScene()
	if j := s.judgement(); j.Verdict != Undecided || j.Cause != TooFew || j.Objective != 2*time.Millisecond {
		t.Errorf("before the end of the first window: %+v", j)
	}
	web := &s.snap.Workloads[0]
	web.Usage.Delay = node.RunQueueDelay{Sum: node.Some(time.Millisecond), Timeslices: node.Some[int64](3)} // schedstat, hardly a wait
	for range 12 {
		s.snap.At = s.snap.At.Add(time.Second)
		s.tracker = s.tracker.Observe(s.snap)
	}
	if j := s.judgement(); j.Verdict != Undecided || j.Cause != TooFew {
		t.Errorf("with three time slices in ten seconds: %+v", j)
	}
	web.Usage.Delay = node.RunQueueDelay{}
	s.tracker = s.tracker.Observe(s.snap)
	if j := s.judgement(); j.Verdict != Undecided || j.Cause != Unmeasured {
		t.Errorf("without counters: %+v", j)
	}
	web.Class = node.BE
	if all := s.tracker.Observe(s.snap).Judgements(s.snap); all != nil {
		t.Errorf("a BE workload has a verdict: %+v", all)
	}
}

// TestAChangedObjectiveIsJudgedAnew changes the objective of a service that misses
// it. The old verdict must not stay.
func TestAChangedObjectiveIsJudgedAnew(t *testing.T) {
	s := newScene()
	runners := map[node.WorkloadID]time.Duration{"batch/train": 900 * time.Millisecond}
	s.second(10, time.Microsecond, nil)
	if j := s.second(100, 9*time.Millisecond, runners); j.Verdict != Missed {
		t.Fatalf("%+v", j)
	}
	s.snap.Workloads[0].Objective.RunQueueDelay = node.Some(500 * time.Millisecond)
	if j := s.second(100, 9*time.Millisecond, runners); j.Verdict != Undecided || len(s.tracker.Violations()) > 0 {
		t.Errorf("with an objective of 500 ms: %+v", j)
	}
	if j := s.second(400, 9*time.Millisecond, runners); j.Verdict != Kept {
		t.Errorf("with an objective of 500 ms, after a window: %+v", j)
	}
	s.snap.Workloads[0].Objective.RunQueueDelay = node.Some(time.Millisecond)
	s.second(100, 9*time.Millisecond, runners)
	if j := s.second(100, 9*time.Millisecond, runners); j.Verdict != Missed || j.Objective != time.Millisecond {
		t.Errorf("with an objective of 1 ms: %+v", j)
	}
	s.snap.Workloads[0].Objective = node.Objective{}
	if s.second(100, 9*time.Millisecond, runners); len(s.tracker.Violations()) > 0 || s.tracker.Judgements(s.snap) != nil {
		t.Error("a service without an objective misses it")
	}
}

// TestWaitsByRunnerAddUp gives names to random runners and takes them away again,
// as the reader of the counters does: it names only some runners. The growth of
// the waits for one class must be exact nevertheless, and no runner may get more
// than it caused.
func TestWaitsByRunnerAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ids := []node.WorkloadID{"a", "b", "c", "d", "e", "f"}
	rest := node.RestOf(node.BE)
	for range 2000 {
		read := func(truth map[node.WorkloadID]time.Duration) parts {
			p := parts{rest: {Cause: ForBE}}
			for _, id := range ids {
				name := id
				if r.IntN(2) == 0 {
					name = rest
				}
				p[name] = part{Time: p[name].Time + truth[id], Cause: ForBE}
			}
			return p
		}
		truth, grown, sum := map[node.WorkloadID]time.Duration{}, map[node.WorkloadID]time.Duration{}, time.Duration(0)
		for _, id := range ids {
			truth[id] = time.Duration(r.IntN(1000))
		}
		before := read(truth)
		for _, id := range ids {
			grown[id] = time.Duration(r.IntN(100))
			truth[id] += grown[id]
			sum += grown[id]
		}
		now := read(truth)
		var got time.Duration
		for _, one := range now.since(before) {
			got += one.Time
			if _, named := before[one.ID]; one.ID != rest && named && one.Time != grown[one.ID] {
				t.Fatalf("%s with a name in both readings has grown by %d, and counts %d", one.ID, grown[one.ID], one.Time)
			}
			if one.Time > sum {
				t.Fatalf("%s counts %d of %d", one.ID, one.Time, sum)
			}
		}
		if got != sum {
			t.Fatalf("the runners have %d, and all together have grown by %d:\n%v\n%v", got, sum, before, now)
		}
	}
}

// TestAnObjectiveBelowTheLeastIsNotJudged checks that an objective that the
// administrator does not allow is visible, and that nothing follows from it.
func TestAnObjectiveBelowTheLeastIsNotJudged(t *testing.T) {
	s := node.Snapshot{Workloads: []node.Workload{{ID: "web", Class: node.LS, Objective: node.Objective{TooStrict: node.Some(time.Millisecond)}}}}
	tracker := Tracker{}.Observe(s)
	j := tracker.Judgements(s)["web"]
	if j.Verdict != Undecided || j.Cause != BelowLeast || j.Objective != time.Millisecond {
		t.Errorf("%+v", j)
	}
	if !tracker.Empty() || len(tracker.Violations()) > 0 {
		t.Errorf("it is tracked: %+v", tracker)
	}
}

// TestTheBestWindowWithoutBatchWorkCounts checks which windows show that an objective
// is too short for the node: those in which the service hardly waited for BE.
func TestTheBestWindowWithoutBatchWorkCounts(t *testing.T) {
	const ms = time.Millisecond
	self, train := map[node.WorkloadID]time.Duration{"shop/web": 900 * ms}, map[node.WorkloadID]time.Duration{"batch/train": 900 * ms}
	s := newScene()
	if j := s.second(1000, 9*ms, train); j.Verdict != Missed || j.Quiet != (Quiet{}) || j.TooShort() {
		t.Errorf("beside batch work: %+v", j)
	}
	if j := s.second(100, 9*ms, self); j.Quiet != (Quiet{}) {
		t.Errorf("of few waits: %+v", j.Quiet)
	}
	if j := s.second(1000, 9*ms, self); j.Quiet.Tail < 9*ms || j.Quiet.At != s.snap.At || !j.TooShort() {
		t.Errorf("without batch work: %+v", j.Quiet)
	}
	for range 7 {
		s.second(1000, 100*time.Microsecond, self)
	}
	best := s.judgement()
	if best.Verdict != Kept || best.Quiet.Tail > ms || best.TooShort() {
		t.Errorf("in a better window: %+v", best)
	}
	if j := s.second(1000, 9*ms, self); j.Verdict != Missed || j.Quiet != best.Quiet {
		t.Errorf("after that: %+v, want %+v", j.Quiet, best.Quiet)
	}
	s.snap.At = s.snap.At.Add(quietStays)
	if j := s.second(1000, 9*ms, self); j.Quiet.Tail < 9*ms || !j.TooShort() {
		t.Errorf("an hour later: %+v", j.Quiet)
	}
}
