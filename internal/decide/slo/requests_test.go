package slo

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A requestScene is a service with the objective p99 5 ms, and a batch pod. Each
// second its clock goes on, and every fifth second its histogram is read.
type requestScene struct {
	t        *testing.T
	x        Tracker
	s        node.Snapshot
	bounds   []time.Duration
	counts   []uint64
	waits    node.Wait // the waits of the service for the batch pod
	trouble  node.SourceTrouble
	silent   bool
	unsure   uint64        // requests whose length is not known, in each second
	perTick  []uint64      // requests in each second, by bucket
	waitTick time.Duration // waits for the batch pod in each second
	selfTick time.Duration // waits for the service itself in each second
	// The histogram is read each so many seconds, and late is the time after which a
	// reading is known.
	every int64
	late  time.Duration

	unsureSum uint64
	self      time.Duration
	unknown   []node.Requests // readings that are not known yet
}

func newRequestScene(t *testing.T) *requestScene {
	b := &requestScene{t: t, bounds: []time.Duration{ms, 5 * ms, 20 * ms}, counts: make([]uint64, 4), perTick: []uint64{0, 50, 0, 0}, every: 5}
	b.s.At = time.Unix(1e9, 0)
	web := node.Workload{ID: "shop/web", Class: node.LS, Pod: true}
	web.Objective.Requests = node.RequestObjective{Within: [len(node.Percentiles)]time.Duration{4: 5 * ms}, Source: node.SourceMetrics, Port: 8080}
	b.s.Workloads = []node.Workload{web, {ID: "batch/train", Class: node.BE, Pod: true}}
	b.waits = node.Wait{Waiter: "shop/web", Runner: "batch/train"}
	return b
}

func (b *requestScene) web() *node.Workload { return &b.s.Workloads[0] }

// run lets seconds pass.
func (b *requestScene) run(seconds int) Judgement {
	for range seconds {
		b.s.At = b.s.At.Add(time.Second)
		for i, n := range b.perTick {
			b.counts[i] += n
		}
		b.waits.Time += b.waitTick
		b.s.Waits = []node.Wait{b.waits}
		if b.self += b.selfTick; b.self > 0 {
			b.s.Waits = append(b.s.Waits, node.Wait{Waiter: "shop/web", Runner: "shop/web", Time: b.self})
		}
		b.unsureSum += b.unsure
		r := &b.web().Usage.Requests
		switch {
		case b.s.At.Unix()%b.every != 0 || b.silent:
		case b.trouble != "":
			r.Trouble = b.trouble
		default:
			b.unknown = append(b.unknown, node.Requests{At: b.s.At, Bounds: b.bounds, Counts: slices.Clone(b.counts), Unsure: b.unsureSum})
		}
		for len(b.unknown) > 0 && b.s.At.Sub(b.unknown[0].At) >= b.late {
			*r, b.unknown = b.unknown[0], b.unknown[1:]
		}
		b.x = b.x.Observe(b.s)
	}
	return b.x.Judgements(b.s)["shop/web"]
}

func (b *requestScene) want(j Judgement, v Verdict, c Cause, costs bool) {
	b.t.Helper()
	if j.Verdict != v || j.Cause != c || j.Requests.Verdict != v || j.Requests.Cause != c {
		b.t.Errorf("%s %s, of requests %s %s; want %s %s", j.Verdict, j.Cause, j.Requests.Verdict, j.Requests.Cause, v, c)
	}
	if got := len(b.x.Unexplained()) > 0; got != costs || costs != b.x.Misses("shop/web") {
		b.t.Errorf("%s %s: BE may lose CPU: %v, want %v", v, c, got, costs)
	}
}

// TestRequestsBlameBEOnlyByMeasuredWaits slows requests down, with and without
// waits for batch work, and then gives the batch work an end.
func TestRequestsBlameBEOnlyByMeasuredWaits(t *testing.T) {
	b := newRequestScene(t)
	b.want(b.run(4), Undecided, TooFew, false)
	b.want(b.run(26), Kept, "", false)
	b.perTick = []uint64{0, 40, 10, 0}
	j := b.run(30)
	b.want(j, Missed, NotWaiting, false)
	if r := j.Requests; r.Total != 750 || r.OverLeast != 150 || r.OverMost != 150 || r.Tail.Or(0) != 20*ms {
		t.Errorf("the window is %+v", r)
	}
	b.waitTick = 2 * ms // 10 requests of 5 ms each, so 12.5 ms would explain them
	b.want(b.run(30), Missed, NotWaiting, false)
	b.waitTick = 15 * ms
	j = b.run(30)
	b.want(j, Missed, ForBE, true)
	if len(j.Runners) != 1 || j.Runners[0].ID != "batch/train" || j.ByBE != 15*b.waitTick || j.Window != 15*time.Second {
		t.Errorf("the miss is %+v", j)
	}
	if text := b.x.Violations()[0].Text(); text != "shop/web answers requests in 20ms (p99), wants 5ms" {
		t.Error(text)
	}
	b.web().Usage.Periods, b.web().Usage.ThrottledPeriods = node.Some[int64](0), node.Some[int64](0)
	b.run(15)
	b.web().Usage.Periods, b.web().Usage.ThrottledPeriods = node.Some[int64](1000), node.Some[int64](500)
	b.want(b.run(15), Missed, OwnLimit, false)
	b.perTick, b.waitTick = []uint64{0, 50, 0, 0}, 0
	b.want(b.run(30), Kept, "", false)
}

// TestASourceThatFailsMovesNothing lets the source of a missed objective fail in
// each way. A reading or two may fail; then there is no verdict and no miss.
func TestASourceThatFailsMovesNothing(t *testing.T) {
	for name, fail := range map[string]struct {
		do    func(b *requestScene)
		cause Cause
		why   node.SourceTrouble
	}{
		"refused":   {func(b *requestScene) { b.trouble = node.TroubleConnect }, NoSource, node.TroubleConnect},
		"silent":    {func(b *requestScene) { b.silent = true }, NoSource, node.TroubleStale},
		"others":    {func(b *requestScene) { b.bounds = []time.Duration{ms, 6 * ms, 20 * ms} }, NoSource, node.TroubleReset},
		"restarted": {func(b *requestScene) { clear(b.counts) }, NoSource, node.TroubleReset},
	} {
		b := newRequestScene(t)
		b.perTick, b.waitTick = []uint64{0, 40, 10, 0}, 100*ms
		b.want(b.run(40), Missed, ForBE, true)
		b.trouble = node.TroubleSlow
		b.want(b.run(10), Missed, ForBE, true)
		b.trouble = ""
		b.want(b.run(5), Missed, ForBE, true)
		fail.do(b)
		seconds := 30
		if fail.why == node.TroubleReset {
			seconds = 10
		}
		j := b.run(seconds)
		if b.want(j, Undecided, fail.cause, false); j.Requests.Trouble != fail.why {
			t.Errorf("%s: %q, want %q", name, j.Requests.Trouble, fail.why)
		}
		b.trouble, b.silent = "", false
		b.want(b.run(30), Missed, ForBE, true)
		b.perTick = []uint64{0, 1, 0, 0}
		b.want(b.run(150), Undecided, TooFew, false)
	}
}

// TestASourceThatCannotTellDecidesNothing lets requests overlap, so that for some of
// them no length is known.
func TestASourceThatCannotTellDecidesNothing(t *testing.T) {
	b := newRequestScene(t)
	b.perTick, b.waitTick = []uint64{0, 400, 100, 0}, time.Second
	b.want(b.run(40), Missed, ForBE, true)
	b.unsure = 5 // of 505
	b.want(b.run(30), Missed, ForBE, true)
	if r := b.run(1).Requests; r.UnknownPercent() != 1 || r.Unknown*500 != r.Total*5 {
		t.Errorf("of %d requests and %d more, the time of %d %% is not known", r.Total, r.Unknown, r.UnknownPercent())
	}
	b.unsure = 6
	b.want(b.run(30), Undecided, Overlapping, false)
	if r := b.run(1).Requests; r.UnknownPercent() != 2 || r.Unknown*500 != r.Total*6 {
		t.Errorf("of %d requests and %d more, the time of %d %% is not known", r.Total, r.Unknown, r.UnknownPercent())
	}
	b.unsure, b.perTick = 0, []uint64{0, 500, 0, 0}
	b.want(b.run(30), Kept, "", false)
	b.unsure, b.perTick = 5, []uint64{0, 496, 4, 0} // together more than the objective allows
	b.want(b.run(30), Undecided, Straddled, false)
	b.unsure, b.unsureSum = 0, 0 // begins again
	if j := b.run(5); j.Requests.Trouble != node.TroubleReset {
		t.Errorf("after the count began again: %+v", j.Requests)
	}
}

// TestRequestsThatTheSourceDoesNotSeeDecideNothing has a service whose source counts no
// request, such as one that answers by QUIC or at a UNIX socket and is measured at TCP.
func TestRequestsThatTheSourceDoesNotSeeDecideNothing(t *testing.T) {
	b := newRequestScene(t)
	b.web().Objective.Requests.Source = node.SourceSocket
	b.perTick, b.waitTick = []uint64{0, 0, 0, 0}, time.Second
	b.want(b.run(20), Undecided, TooFew, false)
	b.want(b.run(200), Undecided, TooFew, false)
}

// TestAReadingOfPrometheusCountsForAMinute silences the source of a missed
// objective. A Prometheus server answers less often than the pod itself, so its
// readings count for longer. After a minute nothing stays bound by them.
func TestAReadingOfPrometheusCountsForAMinute(t *testing.T) {
	b := newRequestScene(t)
	b.web().Objective.Requests.Source = node.SourceQuery
	b.perTick, b.waitTick = []uint64{0, 40, 10, 0}, 100*ms
	b.want(b.run(40), Missed, ForBE, true)
	b.silent = true
	b.want(b.run(55), Missed, ForBE, true)
	j := b.run(10)
	if b.want(j, Undecided, NoSource, false); j.Requests.Trouble != node.TroubleStale {
		t.Errorf("%q, want stale", j.Requests.Trouble)
	}
}

// TestAPrometheusServerIsNeverQuiteOnTime judges each pair of readings that are a
// little less than 15 s apart, as they are where a server reads its targets every 15 s.
func TestAPrometheusServerIsNeverQuiteOnTime(t *testing.T) {
	w := node.Workload{ID: "shop/web", Class: node.LS}
	w.Objective.Requests = node.RequestObjective{Within: [len(node.Percentiles)]time.Duration{4: 5 * ms}, Source: node.SourceQuery}
	begun := time.Unix(1e9, 0)
	var f RequestState
	for i := range 4 {
		at := begun.Add(time.Duration(i) * (15*time.Second - time.Microsecond))
		w.Usage.Requests = node.Requests{At: at, Bounds: []time.Duration{5 * ms}, Counts: []uint64{uint64(i) * 1000, 0}}
		f = f.observe(at.Add(20*time.Second), &w, Reading{}, nil, Taken{})
		if got := f.Judgement.Requests.Total; i > 0 && got != 1000 {
			t.Errorf("after reading %d: %d requests in the last window, want those of one reading", i, got)
		}
	}
}

// TestTheWaitsAreThoseOfTheTimeOfTheRequests has slow requests for half a minute, and
// batch work that makes the service wait at the same time or later. A Prometheus server
// tells of the requests after some time, when the batch work does something else.
func TestTheWaitsAreThoseOfTheTimeOfTheRequests(t *testing.T) {
	for _, late := range []time.Duration{0, 3 * time.Second, 20 * time.Second, 44 * time.Second} {
		for from, want := range map[int]Cause{60: ForBE, 105: NotWaiting} { // second in which the batch work begins
			b := newRequestScene(t)
			b.web().Objective.Requests.Source, b.every, b.late = node.SourceQuery, 15, late
			misses := 0
			for second := range 180 {
				b.perTick, b.waitTick = []uint64{0, 50, 0, 0}, 0
				if second >= 60 && second < 90 {
					b.perTick = []uint64{0, 40, 10, 0}
				}
				if second >= from && second < from+30 {
					b.waitTick = 200 * ms
				}
				before := b.x.Requests["shop/web"].Miss.At
				if j := b.run(1); j.Verdict == Missed && !j.At.Equal(before) {
					if misses++; j.Cause != want {
						t.Errorf("%v late, batch work from second %d: in second %d the cause is %s, want %s: %+v", late, from, second, j.Cause, want, j.Waits)
					}
				}
				if n := len(b.x.Requests["shop/web"].Marks); n > maxMarks {
					t.Fatalf("%d marks", n)
				}
			}
			if misses == 0 {
				t.Errorf("%v late, batch work from second %d: no miss", late, from)
			}
		}
	}
}

// TestRequestsThatAreSlowWithoutBatchWork checks which windows show that a target is too
// short for the node: those in which the service hardly waited for BE, by buckets that tell.
func TestRequestsThatAreSlowWithoutBatchWork(t *testing.T) {
	b := newRequestScene(t)
	b.perTick, b.waitTick = []uint64{0, 40, 10, 0}, 200*ms
	if r := b.run(40).Requests; r.Verdict != Missed || r.TooShort() || r.Quiet != (Quiet{}) {
		t.Errorf("beside batch work: %+v", r)
	}
	b.waitTick, b.selfTick = 0, ms
	if r := b.run(40).Requests; r.Verdict != Missed || !r.TooShort() || r.Quiet.Tail != 20*ms {
		t.Errorf("without it: %+v", r)
	}
	b.silent = true
	b.run(60)
	b.silent, b.perTick = false, []uint64{0, 50, 0, 0}
	if r := b.run(40).Requests; r.Verdict != Kept || r.TooShort() || r.Quiet.Tail != 5*ms {
		t.Errorf("in a better window: %+v", r)
	}
	b.perTick = []uint64{0, 40, 10, 0}
	if r := b.run(40).Requests; r.Verdict != Missed || r.TooShort() || r.Quiet.Tail != 5*ms {
		t.Errorf("after that: %+v", r)
	}
	b = newRequestScene(t)
	b.web().Objective.Requests.Within[4] = 10 * ms // within a bucket
	b.perTick, b.selfTick = []uint64{0, 40, 10, 0}, ms
	if r := b.run(40).Requests; r.Verdict != Undecided || r.TooShort() || r.Quiet.Tail != 20*ms {
		t.Errorf("with a bucket that does not tell: %+v", r)
	}
}

// TestAWindowBeginsAfterWhatWasDone has a source that tells a second late what it counted.
// The batch work ends when the service is known to miss its objective because of it. The
// requests of the second before must not count against the time after.
func TestAWindowBeginsAfterWhatWasDone(t *testing.T) {
	b := newRequestScene(t)
	b.late = time.Second
	b.perTick, b.waitTick = []uint64{0, 30, 20, 0}, 200*ms
	for range 40 {
		if b.run(1).Verdict == Missed {
			break
		}
	}
	b.want(b.x.Judgements(b.s)["shop/web"], Missed, ForBE, true)
	done := b.s.At
	b.perTick, b.waitTick = []uint64{0, 50, 0, 0}, 0
	for range 30 {
		if j := b.run(1); j.Verdict != Missed || !j.At.Equal(done) {
			break
		}
	}
	j := b.x.Judgements(b.s)["shop/web"]
	if b.want(j, Kept, "", false); b.s.At.Sub(done) > 21*time.Second {
		t.Errorf("%v later", b.s.At.Sub(done))
	}
}

// TestAnObjectiveForRequestsEnds takes the objective of a service that misses it
// away, and changes it.
func TestAnObjectiveForRequestsEnds(t *testing.T) {
	b := newRequestScene(t)
	b.perTick, b.waitTick = []uint64{0, 40, 10, 0}, 100*ms
	b.want(b.run(40), Missed, ForBE, true)
	text, err := json.Marshal(b.x)
	if err != nil {
		t.Fatal(err)
	}
	var again Tracker // as after a restart of the agent
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	b.x = again
	b.want(b.run(10), Missed, ForBE, true)
	b.web().Objective.Requests.Within[4] = 20 * ms
	b.want(b.run(1), Undecided, TooFew, false)
	b.want(b.run(30), Kept, "", false)
	b.web().Objective.Requests.Within[4] = 10 * ms
	b.want(b.run(30), Undecided, Straddled, false)
	b.web().Objective.Requests.Within = [len(node.Percentiles)]time.Duration{0: ms, 4: 20 * ms}
	j := b.run(30)
	if b.want(j, Missed, ForBE, true); node.Percentiles[j.Requests.Target].Name != "p50" {
		t.Errorf("the missed target is %+v", j.Requests)
	}
	b.web().Objective = node.Objective{}
	if j := b.run(1); !reflect.DeepEqual(j, Judgement{}) || !b.x.Empty() || b.x.Misses("shop/web") || b.x.Violations() != nil {
		t.Errorf("without an objective: %+v", j)
	}
}

// TestRequestsBeyondAllBucketsAreLonger has buckets that end at the target, as the
// documentation advises, or after centuries.
func TestRequestsBeyondAllBucketsAreLonger(t *testing.T) {
	b := newRequestScene(t)
	b.bounds, b.perTick = []time.Duration{ms, 2 * ms, 5 * ms}, []uint64{0, 40, 0, 10}
	b.run(40)
	if text := b.x.Requests["shop/web"].Miss.Text(); text != "shop/web answers requests in more than 5ms (p99), wants 5ms, hardly for BE" {
		t.Error(text)
	}
	b = newRequestScene(t)
	b.bounds, b.perTick = []time.Duration{ms, 5 * ms, 1e18}, []uint64{0, 40, 10, 0}
	b.run(40)
	if m := b.x.Requests["shop/web"].Miss; m.Percent() != 1e18/5e6*100 {
		t.Errorf("%v of 5ms are %d %%", m.Tail, m.Percent())
	}
}

// TestAQuietServiceIsNotKeptByChance has seven requests in a second. The measured
// percentile of an objective that is kept must not exceed the target.
func TestAQuietServiceIsNotKeptByChance(t *testing.T) {
	for every, want := range map[int]Verdict{5: Missed, 10: "", 15: Kept} { // seconds between two slow requests
		b := newRequestScene(t)
		var j Judgement
		for i := range 120 {
			b.perTick = []uint64{0, 7, 0, 0}
			if i%every == 0 {
				b.perTick = []uint64{0, 6, 1, 0}
			}
			if j = b.run(1); j.Verdict == Kept && j.Requests.Tail.Or(time.Hour) > 5*ms {
				t.Fatalf("each %d s: kept, and %+v", every, j.Requests)
			}
		}
		if want != "" && j.Verdict != want {
			t.Errorf("each %d s: %+v, want %s", every, j, want)
		}
	}
}

// TestASourceThatAnswersAgainIsInNoTrouble lets a source fail for some time. From its
// next answer on, the trouble is over, although there is no verdict yet.
func TestASourceThatAnswersAgainIsInNoTrouble(t *testing.T) {
	b := newRequestScene(t)
	b.silent = true
	b.want(b.run(30), Undecided, NoSource, false)
	b.silent = false
	j := b.run(5)
	if b.want(j, Undecided, TooFew, false); j.Requests.Trouble != "" {
		t.Errorf("the trouble is %q", j.Requests.Trouble)
	}
	b.want(b.run(15), Kept, "", false)
}

// TestARestartOfTheAgentEndsNoMiss restarts the agent while a service misses its
// objective because of batch work. Its first snapshots have no reading yet, and the
// waits are counted from 0 again.
func TestARestartOfTheAgentEndsNoMiss(t *testing.T) {
	b := newRequestScene(t)
	b.perTick, b.waitTick = []uint64{0, 40, 10, 0}, 100*ms
	b.want(b.run(40), Missed, ForBE, true)
	text, err := json.Marshal(b.x)
	if err != nil {
		t.Fatal(err)
	}
	b.x = Tracker{}
	if err := json.Unmarshal(text, &b.x); err != nil {
		t.Fatal(err)
	}
	b.web().Usage.Requests, b.waits.Time, b.silent = node.Requests{}, 0, true
	b.want(b.run(4), Missed, ForBE, true)
	b.silent = false
	b.want(b.run(30), Missed, ForBE, true)
	b.web().Usage.Requests, b.silent = node.Requests{}, true // the pod has another address
	b.want(b.run(5), Missed, ForBE, true)
	b.web().Usage.Requests.Trouble = node.TroubleSlow
	b.want(b.run(5), Missed, ForBE, true)
	b.web().Usage.Requests.Trouble = ""
	if j := b.run(20); j.Verdict != Undecided || j.Requests.Trouble != node.TroubleStale || b.x.Misses("shop/web") {
		t.Errorf("30 s without a reading: %+v", j)
	}
	b.silent = false
	b.want(b.run(30), Missed, ForBE, true)
	b.silent, b.web().Usage.Requests = true, node.Requests{Trouble: node.TroubleOff}
	if j := b.run(1); j.Verdict != Undecided || j.Requests.Trouble != node.TroubleOff {
		t.Errorf("switched off: %+v", j)
	}
}

// TestTwoObjectivesOfOneService checks the verdict of a service that has an
// objective for its waits as well.
func TestTwoObjectivesOfOneService(t *testing.T) {
	b := newRequestScene(t)
	b.web().Objective.RunQueueDelay = node.Some(ms)
	j := b.run(40)
	if j.Verdict != Kept || j.Requests.Verdict != Kept || j.Objective != ms {
		t.Errorf("unmeasured waits and requests in time: %+v", j)
	}
	b.silent = true
	if j = b.run(60); j.Verdict != Undecided || j.Cause != Unmeasured || j.Requests.Trouble != node.TroubleStale {
		t.Errorf("unmeasured waits and no source: %+v", j)
	}
	counts := make([]uint64, 29)
	counts[3] = 1000
	b.web().Usage.Delay = node.RunQueueDelay{Sum: node.Some(ms), Counts: counts}
	j = b.run(12)
	if j.Verdict != Kept || j.Requests.Verdict != Undecided {
		t.Errorf("short waits and no source: %+v", j)
	}
	b.silent, b.perTick, b.waitTick = false, []uint64{0, 40, 10, 0}, 100*ms
	j = b.run(45)
	if j.Verdict != Missed || j.Cause != ForBE || j.Requests.Verdict != Missed || j.Objective != ms {
		t.Errorf("long requests: %+v", j)
	}
	if m := b.x.Violations(); len(m) != 1 || m[0].Percentile != "p99" {
		t.Errorf("violations %+v, want one for the service", m)
	}
}

// TestTheCauseIsTheOneForWhichBEGivesWay misses both objectives of a service, one of them
// because of batch work. The verdict must name the cause for which BE gives way.
func TestTheCauseIsTheOneForWhichBEGivesWay(t *testing.T) {
	web := node.Workload{ID: "web", Class: node.LS}
	web.Objective.RunQueueDelay, web.Objective.Requests.Within[4] = node.Some(ms), 5*ms
	s := node.Snapshot{At: time.Unix(1e9, 0), Workloads: []node.Workload{web}}
	for _, waits := range Causes {
		for _, requests := range []Cause{ForBE, NotWaiting, OwnThreads} {
			x := Tracker{Work: map[node.WorkloadID]State{}, Requests: map[node.WorkloadID]RequestState{}}
			helpless := waits != ForBE && waits != UnknownRunner
			x.Work["web"] = State{
				Miss:      Miss{Workload: "web", At: s.At, Helpless: helpless},
				Judgement: Judgement{Verdict: Missed, Cause: waits, Objective: ms},
			}
			x.Requests["web"] = RequestState{
				Miss:      Miss{Workload: "web", At: s.At, Percentile: "p99", Helpless: requests != ForBE},
				Judgement: Judgement{Verdict: Missed, Cause: requests, Requests: RequestJudgement{Verdict: Missed, Cause: requests}},
			}
			j := x.Judgements(s)["web"]
			if gives := !x.Violations()[0].Helpless; gives != (j.Cause == ForBE || j.Cause == UnknownRunner) {
				t.Errorf("waits for %s, requests for %s: BE gives way: %v, and the cause is %s", waits, requests, gives, j.Cause)
			}
			if j.Verdict != Missed || j.Objective != ms || j.Requests.Cause != requests {
				t.Errorf("waits for %s, requests for %s: %+v", waits, requests, j)
			}
		}
	}
}

// TestVerdictsNeverContradictTheTruth judges random requests by random buckets.
func TestVerdictsNeverContradictTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 44))
	said := map[Verdict]int{}
	for range 10_000 {
		var d durations
		for b := time.Duration(1); len(d.bounds) < 1+r.IntN(12); {
			b += time.Duration(r.Int64N(int64(8 * ms)))
			d.bounds = append(d.bounds, b)
		}
		d.counts = make([]int64, len(d.bounds)+1)
		target := time.Duration(1 + r.Int64N(int64(30*ms)))
		if r.IntN(2) == 0 {
			target = d.bounds[r.IntN(len(d.bounds))]
		}
		i := r.IntN(len(node.Percentiles))
		scale, over := float64(target)/(1+float64(r.IntN(6))), int64(0)
		for range 100 + r.IntN(2000) {
			took := time.Duration(r.ExpFloat64() * scale)
			if took > target {
				over++
			}
			if r.IntN(300) == 0 {
				d.unsure++
				continue
			}
			bucket, _ := slices.BinarySearch(d.bounds, took)
			d.counts[bucket]++
			d.total++
		}
		f := RequestState{}
		f.Want.Within[i] = target
		j := f.judge(time.Unix(0, 0), &node.Workload{}, d, requestWindow, requestWindow, Reading{}, nil, Taken{}).Judgement
		most := (1000 - node.Percentiles[i].Permille) * d.total
		if j.Verdict == Kept && 1000*over > most || j.Verdict == Missed && 1000*over <= most+1000*Tolerance {
			t.Fatalf("%s, but %d of %d were longer than %v: %+v", j.Verdict, over, d.total, target, j.Requests)
		}
		if q := j.Requests; q.OverLeast > over || q.OverMost < over {
			t.Fatalf("%d of %d were longer than %v: %+v", over, d.total, target, q)
		}
		said[j.Verdict]++
	}
	for _, v := range verdicts {
		if said[v] < 500 {
			t.Errorf("%s was said %d times only: %v", v, said[v], said)
		}
	}
}
