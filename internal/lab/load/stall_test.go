package load

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestAStallOfTheClientIsLeftOutAndASlowServiceIsNot stops the client's CPU for
// 3 ms, after which the client sends the due requests in a burst. At another
// time, the service is slow, and this slow time must show in the result.
func TestAStallOfTheClientIsLeftOutAndASlowServiceIsNot(t *testing.T) {
	r := resultOf(t, 1000, func(i int, latency, lag *uint32) {
		switch {
		case i >= 100 && i < 103: // due at 100, 101, 102 ms, sent at 103 ms
			late := uint32(103 - i)
			*latency, *lag = late*1000+400, late*1000000
		case i >= 500 && i < 520: // the service itself takes 7 ms
			*latency = 7000
		}
	})
	// Requests that were due from 100 to 102 ms were late. Requests up to 105
	// ms may have queued behind them.
	if r.Spoiled != 5 || r.Completed != 1000 || r.LatencyHistogram.TotalCount() != 995 {
		t.Errorf("%d spoiled, %d completed, %d in the histogram; want 5, 1000, 995", r.Spoiled, r.Completed, r.LatencyHistogram.TotalCount())
	}
	if r.Latency.P99 < 6990 || r.Latency.Max > 7010 || r.Lag.Max < 2900 {
		t.Errorf("P99 %v µs, max %v µs, lag up to %v µs", r.Latency.P99, r.Latency.Max, r.Lag.Max)
	}
	if r.WithStalls.P99 < 6990 || r.WithStalls.Mean <= r.Latency.Mean {
		t.Errorf("with stalls: P99 %v µs, mean %v µs; without: mean %v µs", r.WithStalls.P99, r.WithStalls.Mean, r.Latency.Mean)
	}
	if len(r.Void) > 0 {
		t.Errorf("void: %q", r.Void)
	}
	stalled := int64(0)
	for _, i := range r.Intervals {
		stalled += i.Stalled.TotalCount()
	}
	if stalled != 5 {
		t.Errorf("%d latencies are apart, want 5", stalled)
	}
}

// TestARunThatLacksSlowRequestsIsVoid has a service that stands still for 100 of
// 1000 ms, and a client that does not run for a part of this time and of the other.
func TestARunThatLacksSlowRequestsIsVoid(t *testing.T) {
	const from, to = 400, 500 // ms
	for name, c := range map[string]struct {
		stalled func(ms int) bool // the client
		void    bool
		inDelay int64 // spoiled requests
	}{
		"as often as in the other time": {func(ms int) bool { return ms%50 < 5 }, false, 7},
		"for half of the stall":         {func(ms int) bool { return ms >= from && ms < to && ms%10 < 3 }, true, 45},
		"for the begin of the stall":    {func(ms int) bool { return ms >= from && ms < from+20 }, false, 0},
		"for most of the stall's end":   {func(ms int) bool { return ms >= from+60 && ms < to-5 }, true, 37},
		"in short turns":                {func(ms int) bool { return ms >= from && ms < to+4 && ms%4 < 2 }, true, 96},
		"only in the other time":        {func(ms int) bool { return ms < from && ms%20 < 4 }, false, 0},
		"over the end of the service's": {func(ms int) bool { return ms >= from+60 && ms < to+20 }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := resultOf(t, 1000, func(i int, latency, lag *uint32) {
				sent := i
				for c.stalled(sent) {
					sent++
				}
				if sent > i {
					*lag = uint32(sent-i) * 1e6
				}
				answered := sent
				if sent >= from && sent < to {
					answered = to
				}
				for c.stalled(answered) { // the client reads the answer when it runs
					answered++
				}
				*latency = uint32(answered-i)*1000 + 100
			})
			r.Limits.SpoiledRatio, r.Limits.P90Ratio = 1, 1000 // the other rules
			if err := r.Discard(0); err != nil {
				t.Fatal(err)
			}
			if r.SpoiledInDelay != c.inDelay || (len(r.Void) > 0) != c.void {
				t.Errorf("%d of %d spoiled in the delay, %d of %d in all, void %q; want %d, void %v", r.SpoiledInDelay, r.DueInDelay, r.Spoiled, r.Scheduled, r.Void, c.inDelay, c.void)
			}
			if c.void && !strings.Contains(r.Void[0], "slow requests are missing") {
				t.Errorf("void %q", r.Void)
			}
		})
	}
}

// TestARunWhoseP90DependsOnTheClientIsVoid has a client that stands still while the
// service is slow, or while it is fast. Few requests are left out, but P90 is another
// without them.
func TestARunWhoseP90DependsOnTheClientIsVoid(t *testing.T) {
	for name, c := range map[string]struct {
		slow    func(ms int) bool // the service takes 1.5 ms instead of 0.1 ms
		stalled func(ms int) bool // the client sends 0.2 ms late
		void    string
	}{
		"slow requests are left out": {func(ms int) bool { return ms%100 < 11 }, func(ms int) bool { return ms%100 < 2 }, "P90 is 1.50ms with all requests, and 100µs without the 4.0 % that stalls"},
		"fast requests are left out": {func(ms int) bool { return ms%1000 < 99 }, func(ms int) bool { return ms%100 == 50 && ms%1000 >= 100 }, "P90 is 100µs with all requests, and 1.50ms without the 2.7 % that stalls"},
		"P90 stays between them":     {func(ms int) bool { return ms%1000 < 97 }, func(ms int) bool { return ms%100 == 50 && ms%1000 >= 600 }, ""},
		"neither":                    {func(ms int) bool { return ms%100 < 30 }, func(ms int) bool { return ms%100 == 60 }, ""},
		"too many":                   {func(int) bool { return false }, func(ms int) bool { return ms%50 == 7 }, "the client itself did not run for 6 % of the requests, more than 5 %"},
	} {
		r := resultOf(t, 4000, func(i int, latency, lag *uint32) {
			if c.slow(i) {
				*latency = 1500
			}
			if c.stalled(i) {
				*lag = 200_000
			}
		})
		if why := strings.Join(r.Void, "\n"); (why == "") != (c.void == "") || !strings.Contains(why, c.void) {
			t.Errorf("%s: void %q, want %q", name, why, c.void)
		}
		if r.DependsOnStalls() != (c.void != "") || r.Disturbed != (c.void != "") {
			t.Errorf("%s: it depends on stalls: %v, disturbed: %v", name, r.DependsOnStalls(), r.Disturbed)
		}
	}
}

// TestTheFirstRowHasAllRequests prints a run in which a stall delayed some.
func TestTheFirstRowHasAllRequests(t *testing.T) {
	r := resultOf(t, 1000, func(i int, latency, lag *uint32) {
		if i >= 100 && i < 103 {
			*latency, *lag = 9000, 3_000_000
		}
	})
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(text.String(), "max\n")
	first, rest, _ := strings.Cut(rows, "\n")
	second, _, _ := strings.Cut(rest, "\n")
	if !strings.HasPrefix(first, "  latency ") || !strings.HasSuffix(first, "9.01ms") || !strings.HasPrefix(second, "  no stalls ") || !strings.HasSuffix(second, "100µs") {
		t.Errorf("the first rows are %q and %q", first, second)
	}
}

func TestDelaysAreThoseOfTheService(t *testing.T) {
	const ms = int64(time.Millisecond)
	// A request is due at a time in ms, sent some ms later (or after it waited for a
	// connection), and answered at a time in ms.
	type request struct{ due, late, answered int64 }
	const waited = -1
	client := func(requests ...request) *thread {
		var r record
		for _, q := range requests {
			lag := noLag
			if q.late != waited {
				lag = uint32(q.late * ms)
			}
			r.due, r.lag = append(r.due, q.due*ms), append(r.lag, lag)
			r.latency = append(r.latency, uint32((q.answered-q.due)*ms/int64(LatencyUnit)))
		}
		return &thread{record: r}
	}
	for name, c := range map[string]struct {
		threads []*thread
		want    []span
	}{
		"answered soon":                     {[]*thread{client(request{0, 0, 2}, request{5, 0, 6})}, nil},
		"a delay":                           {[]*thread{client(request{0, 0, 9})}, []span{{2 * ms, 9 * ms}}},
		"two requests in one delay":         {[]*thread{client(request{0, 0, 9}, request{4, 0, 12})}, []span{{2 * ms, 12 * ms}}},
		"a stall of the client alone":       {[]*thread{client(request{10, 0, 30}, request{11, 19, 31})}, nil},
		"a stall in a delay":                {[]*thread{client(request{10, 0, 40}, request{15, 10, 40})}, []span{{12 * ms, 40 * ms}}},
		"a stall at the end of a delay":     {[]*thread{client(request{10, 0, 40}, request{25, 15, 41})}, []span{{12 * ms, 25 * ms}}},
		"another thread's stall at the end": {[]*thread{client(request{10, 0, 40}), client(request{25, 15, 41})}, []span{{12 * ms, 40 * ms}}},
		"waited for a connection":           {[]*thread{client(request{10, waited, 40})}, []span{{12 * ms, 40 * ms}}},
		"waited after a stall":              {[]*thread{client(request{10, 20, 31}, request{15, waited, 35})}, []span{{34 * ms, 35 * ms}}},
		"failed": {[]*thread{func() *thread {
			k := client(request{0, 0, 9})
			k.record.latency[0] = pending
			return k
		}()}, nil},
	} {
		got := delays(c.threads, stalls(c.threads))
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty(), cmp.AllowUnexported(span{})); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", name, diff)
		}
	}
}

func TestARunThatTheClientMostlySleptThroughIsVoid(t *testing.T) {
	r := resultOf(t, 1000, func(i int, latency, lag *uint32) {
		if i%10 == 0 {
			*latency, *lag = 1300, 1000000
		}
	})
	if len(r.Void) != 1 || !strings.Contains(r.Void[0], "did not run") {
		t.Errorf("void: %q", r.Void)
	}
}
