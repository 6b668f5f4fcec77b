package load

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/load/fate"
	"tenon.sh/tenon/internal/model/unit"
)

// resultOf returns the result of a run with one request per millisecond.
// Requests are sent on time and answered after 100 µs, except those that a
// function changes.
func resultOf(t *testing.T, requests int, change func(i int, latency, lag *uint32)) *Result {
	t.Helper()
	r := record{causes: fate.Causes{{Kind: fate.Read, Reason: "closed"}, {Kind: fate.Timeout}, {Kind: fate.Status, Reason: "503"}}}
	for i := range requests {
		latency, lag := uint32(100), uint32(200)
		change(i, &latency, &lag)
		r.due = append(r.due, int64(i)*int64(time.Millisecond))
		r.latency = append(r.latency, latency)
		r.lag = append(r.lag, lag)
	}
	total := time.Duration(requests) * time.Millisecond
	r.usage = []usage{{}, {at: int64(total), cpu: int64(total), watching: int64(total * 9 / 10)}}
	result := &Result{
		Schema: 1, URL: "http://127.0.0.1:8000/", Loop: "open", Arrival: Constant, CPUs: unit.CPUSetOf(1), Connections: 8, Limits: DefaultLimits,
		Started: time.Unix(1000000000, 0).UTC(),
	}
	result.Intervals, result.Causes = intervals([]*thread{{record: r}}, openLoop, total)
	if err := result.Discard(0); err != nil {
		t.Fatal(err)
	}
	return result
}

// The causes of resultOf.
const (
	failedRead = noLatency + iota
	failedTimeout
	failedStatus
)

func asIs(int, *uint32, *uint32) {}

func TestAGoodRunIsNotVoid(t *testing.T) {
	r := resultOf(t, 1000, asIs)
	if len(r.Void) > 0 || len(r.Hints) > 0 {
		t.Errorf("void %q, hints %q", r.Void, r.Hints)
	}
	if r.Latency.P99 != 100 || r.Lag.P99 != 0.2 || r.OfferedRate != 1000 || r.AchievedRate != 1000 || math.Abs(r.BusyRatio-0.1) > 1e-9 {
		t.Errorf("P99 %v µs, lag %v µs, offered %v, achieved %v, busy %v", r.Latency.P99, r.Lag.P99, r.OfferedRate, r.AchievedRate, r.BusyRatio)
	}
}

// TestAPartHasItsWholeIntervals takes 0.7 s of a run of 2 s whose requests are slow in
// that time, and fail once before it.
func TestAPartHasItsWholeIntervals(t *testing.T) {
	r := resultOf(t, 2000, func(i int, latency, _ *uint32) {
		switch {
		case i == 150:
			*latency = failedStatus
		case i >= 300 && i < 1000:
			*latency = 400
		case i >= 1000:
			*latency = 900
		}
	})
	before := r.Latency
	part, err := r.Part(r.Started.Add(250*time.Millisecond), r.Started.Add(1050*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if part.Length != 700*time.Millisecond || part.Scheduled != 700 || part.Latency.P50 != 400 || part.Latency.Max != 400 || part.Errors.Total() != 0 || len(part.Void) != 0 {
		t.Errorf("%v, %d requests, %+v, void %q", part.Length, part.Scheduled, part.Latency, part.Void)
	}
	if early, late := part.Halves(); early.TotalCount() != 300 || late.TotalCount() != 400 || early.Max() != 400 {
		t.Errorf("%d and %d requests", early.TotalCount(), late.TotalCount())
	}
	if r.Latency != before || r.Errors.Total() != 1 || r.Causes[0].Count+r.Causes[len(r.Causes)-1].Count == 0 {
		t.Errorf("the whole run has changed: %+v, %+v", r.Latency, r.Causes)
	}
	if _, err := r.Part(r.Started.Add(time.Hour), r.Started.Add(2*time.Hour)); err == nil {
		t.Error("a part after the end of the load is no error")
	}
}

func TestASpoiledRunIsVoidAndSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(i int, latency, lag *uint32)
		want   string
	}{
		"late client": {func(i int, latency, lag *uint32) {
			if i%50 == 0 {
				*latency, *lag = 250, 100000
			}
		}, "100 of the 250 µs of P99 are its own lag"},
		"slow service": {func(i int, latency, _ *uint32) {
			*latency = uint32(1000 + 1000*i)
		}, "50.0 % of the offered rate was answered"},
		"read errors": {func(i int, latency, _ *uint32) {
			if i == 17 {
				*latency = failedRead
			}
		}, "read errors: 1 "},
		"time-outs": {func(i int, latency, _ *uint32) {
			if i == 17 {
				*latency = failedTimeout
			}
		}, "timeout errors: 1 "},
		"no answers": {func(_ int, latency, _ *uint32) { *latency = failedStatus }, "no request was answered"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := resultOf(t, 1000, c.change); !strings.Contains(strings.Join(r.Void, "\n"), c.want) {
				t.Errorf("void %q; want %q", r.Void, c.want)
			}
		})
	}
}

// TestASlowServiceIsNotOverloaded has services whose answers to the last
// requests arrive after the end of the run, and such whose queue grows.
func TestASlowServiceIsNotOverloaded(t *testing.T) {
	for name, c := range map[string]struct {
		latency    func(i int) int // µs
		overloaded bool
	}{
		"60 ms":                        {func(int) int { return 60000 }, false},
		"400 ms, two fifths of it all": {func(int) int { return 400000 }, false},
		"60 ms, then slower":           {func(i int) int { return 60000 + 100*i }, true},
		"a twentieth too slow":         {func(i int) int { return 100 + 53*i }, true},
		"a tenth too slow":             {func(i int) int { return 100 + 111*i }, true},
		"ten times too slow":           {func(i int) int { return 1000 + 9000*i }, true},
		"a hundred times too slow":     {func(i int) int { return 1000 + 99000*i }, true},
	} {
		r := resultOf(t, 1000, func(i int, latency, _ *uint32) { *latency = uint32(c.latency(i)) })
		if r.Overloaded() != c.overloaded || (len(r.Void) > 0) != c.overloaded {
			t.Errorf("%s: overloaded %v, void %q; want %v", name, r.Overloaded(), r.Void, c.overloaded)
		}
	}
}

// TestTheWarmUpShowsAnOverload checks that latencies that are long from the begin
// of the measured part on are not taken for the usual ones.
func TestTheWarmUpShowsAnOverload(t *testing.T) {
	r := resultOf(t, 2000, func(i int, latency, _ *uint32) { *latency = uint32(1000 + 1000*i) })
	if err := r.Discard(time.Second); err != nil || !r.Overloaded() {
		t.Errorf("half of the requests are answered, error %v: not overloaded", err)
	}
}

// TestFewRequestsAreNotAnOverload has ten requests per second that take 300 ms on
// average. How many are in work at an end of the measured part is a matter of
// chance.
func TestFewRequestsAreNotAnOverload(t *testing.T) {
	voids := 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		var k thread
		k.record.due = schedule(Config{Rate: 10, Seed: seed}, 0, 1, 12*time.Second)
		for range k.record.due {
			k.record.latency = append(k.record.latency, uint32(1+random.ExpFloat64()*300000))
			k.record.lag = append(k.record.lag, 200)
		}
		r := &Result{Loop: "open", Limits: DefaultLimits}
		r.Intervals, r.Causes = intervals([]*thread{&k}, openLoop, 12*time.Second)
		if err := r.Discard(2 * time.Second); err != nil {
			t.Fatal(err)
		}
		if r.Overloaded() {
			voids++
		}
	}
	if voids > 1 {
		t.Errorf("%d of 100 runs are void", voids)
	}
}

func TestLimitsAreTheCallersOwn(t *testing.T) {
	r := resultOf(t, 1000, func(i int, latency, _ *uint32) {
		if i == 17 {
			*latency = failedRead
		}
	})
	r.Limits.ErrorRatio = 0.01
	if err := r.Discard(0); err != nil || len(r.Void) > 0 {
		t.Errorf("1 error of 1000 with 1 %% allowed: void %q, error %v", r.Void, err)
	}
	r.Limits.BusyRatio = 0.05
	if err := r.Discard(0); err != nil || len(r.Void) != 1 || !strings.Contains(r.Void[0], "10 % busy, more than 5 %") {
		t.Errorf("void %q, error %v", r.Void, err)
	}
}

func TestLagThatMissesTheTailDoesNotVoid(t *testing.T) {
	// Five percent of the requests are sent 30 µs late. The slowest tenth is
	// ten times slower than the others. So the client's lag is not in P99.
	r := resultOf(t, 1000, func(i int, latency, lag *uint32) {
		if i%20 == 1 {
			*latency, *lag = 130, 30000
		}
		if i%10 == 0 {
			*latency = 1000
		}
	})
	if r.Lag.P99 < 29 || len(r.Void) > 0 {
		t.Errorf("P99 of the lag %v µs, void %q", r.Lag.P99, r.Void)
	}
}

func TestRequestsThatWaitedForAConnectionHaveNoLag(t *testing.T) {
	r := resultOf(t, 100, func(i int, latency, lag *uint32) {
		if i < 10 {
			*latency, *lag = 5000, noLag
		}
	})
	if r.WaitedForConnection != 10 || r.LagHistogram.TotalCount() != 90 || r.FromSend.Max < 4990 {
		t.Errorf("%d waited, %d with a lag, longest from send %v µs", r.WaitedForConnection, r.LagHistogram.TotalCount(), r.FromSend.Max)
	}
}

func TestFailedConnectsBringHints(t *testing.T) {
	r := resultOf(t, 100, asIs)
	r.Intervals[0].Errors.Connect = 3
	if err := r.Discard(0); err != nil || len(r.Void) != 1 || !strings.Contains(strings.Join(r.Hints, "\n"), "tcp_tw_reuse = ") {
		t.Errorf("void %q, hints %q, error %v", r.Void, r.Hints, err)
	}
}

// TestNoLatencyIsPrintedWithoutAnAnswer has runs whose requests all failed or were never
// sent.
func TestNoLatencyIsPrintedWithoutAnAnswer(t *testing.T) {
	none := strings.Repeat("         -", 7) + "\n"
	for name, c := range map[string]struct {
		fate uint32
		lag  bool
	}{
		"failed": {noLatency, true}, "unsent": {unsent, false},
	} {
		r := resultOf(t, 100, func(_ int, latency, lag *uint32) {
			if *latency = c.fate; !c.lag {
				*lag = noLag
			}
		})
		var got strings.Builder
		if err := r.WriteText(&got); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.String(), "  latency   "+none) || !strings.Contains(got.String(), "  from send "+none) || strings.Contains(got.String(), "  client lag"+none) == c.lag {
			t.Errorf("%s:\n%s", name, got.String())
		}
	}
	// A part of the requests failed, and the others count.
	some := resultOf(t, 100, func(i int, latency, _ *uint32) {
		if i > 0 {
			*latency = noLatency
		}
	})
	var got strings.Builder
	if err := some.WriteText(&got); err != nil || !strings.Contains(got.String(), "  latency        100µs") || strings.Contains(got.String(), none) {
		t.Errorf("error %v:\n%s", err, got.String())
	}
}

func TestResultAsText(t *testing.T) {
	r := resultOf(t, 1000, func(i int, latency, lag *uint32) {
		if i%100 < 2 {
			*latency, *lag = 2500, 140000
		}
	})
	var got bytes.Buffer
	if err := r.WriteText(&got); err != nil {
		t.Fatal(err)
	}
	want := `1s of load on http://127.0.0.1:8000/, open loop, constant arrivals
  8 connections, CPUs 1, warm-up 0s left out

                  mean       50%       75%       90%       99%     99.9%       max
  latency        148µs     100µs     100µs     100µs    2.50ms    2.50ms    2.50ms
  from send      145µs     100µs     100µs     100µs    2.36ms    2.36ms    2.36ms
  client lag     3.0µs     0.2µs     0.2µs     0.2µs     140µs     140µs     140µs

  offered       1000.0 requests/s (1000)
  achieved      1000.0 requests/s (1000 answered)
  client          10.0 % busy
  waited for a connection: 0, reconnected: 0

This run is void:
  - the client sent late: 140 of the 2501 µs of P99 are its own lag, more than 5 % (and than 50 µs): give it CPUs of its own, or a lower rate
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}
