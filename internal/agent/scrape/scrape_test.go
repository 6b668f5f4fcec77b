package scrape

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/model/node"
)

// want is the objective of the tests.
func want(at net.Addr) node.RequestObjective {
	o := node.RequestObjective{Source: node.SourceMetrics, Path: "/metrics", Series: node.Series{Family: "rtt_seconds", Unit: time.Second}}
	if at != nil {
		o.Port = int(netip.MustParseAddrPort(at.String()).Port())
	}
	o.Within[4] = 5 * time.Millisecond
	return o
}

// TestAHistogramIsAddedUp parses answers that are right.
func TestAHistogramIsAddedUp(t *testing.T) {
	const text = "# HELP rtt_seconds x\n# TYPE rtt_seconds histogram\n" +
		"rtt_seconds_bucket{code=\"200\",le=\"0.005\"} 10\nrtt_seconds_bucket{code=\"200\",le=\"0.25\"} 30\nrtt_seconds_bucket{code=\"200\",le=\"+Inf\"} 31\n" +
		"rtt_seconds_sum{code=\"200\"} 7\nrtt_seconds_count{code=\"200\"} 31\nrtt_seconds_bucket2{le=\"1\"} 5\nother NaN\n" +
		"rtt_seconds_bucket{code=\"500\",le=\"0.005\"} 1\nrtt_seconds_bucket{code=\"500\",le=\"0.25\"} 1\nrtt_seconds_bucket{code=\"500\",le=\"+Inf\"} 4e0 1700000000000\n"
	for name, tc := range map[string]struct {
		change func(o *node.Series)
		counts []uint64
		bounds []time.Duration
	}{
		"all":       {func(*node.Series) {}, []uint64{11, 20, 4}, []time.Duration{5 * time.Millisecond, 250 * time.Millisecond}},
		"one label": {func(o *node.Series) { o.Labels[0] = node.Label{Name: "code", Value: "500"} }, []uint64{1, 0, 3}, []time.Duration{5 * time.Millisecond, 250 * time.Millisecond}},
		"no label":  {func(o *node.Series) { o.Labels[0] = node.Label{Name: "path"} }, []uint64{11, 20, 4}, []time.Duration{5 * time.Millisecond, 250 * time.Millisecond}},
		"in ms":     {func(o *node.Series) { o.Unit = time.Millisecond }, []uint64{11, 20, 4}, []time.Duration{5 * time.Microsecond, 250 * time.Microsecond}},
	} {
		o := want(nil).Series
		tc.change(&o)
		got, err := parse(strings.NewReader(text), o)
		if err != nil || !slices.Equal(got.Counts, tc.counts) || !slices.Equal(got.Bounds, tc.bounds) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestALyingHistogramIsRefused parses answers whose numbers cannot be.
func TestALyingHistogramIsRefused(t *testing.T) {
	one := func(le, count string) string { return fmt.Sprintf("rtt_seconds_bucket{le=%q} %s\n", le, count) }
	end := one("+Inf", "9")
	var many, large strings.Builder
	for i := range 200 {
		many.WriteString(one(fmt.Sprint(i), "9"))
	}
	for i := range 10_000 {
		fmt.Fprintf(&large, "rtt_seconds_bucket{id=\"%d\",le=\"1\"} 1\nrtt_seconds_bucket{id=\"%d\",le=\"+Inf\"} 1\n", i, i)
	}
	for name, tc := range map[string]struct {
		text string
		want node.SourceTrouble
	}{
		"nothing":               {"", node.TroubleAbsent},
		"no histogram":          {"rtt_seconds 5\nrtt_seconds_sum 7\n", node.TroubleAbsent},
		"not a number":          {one("1", "NaN") + end, node.TroubleDamaged},
		"below zero":            {one("1", "-1") + end, node.TroubleDamaged},
		"half a request":        {one("1", "1.5") + end, node.TroubleDamaged},
		"endless":               {one("1", "+Inf") + end, node.TroubleDamaged},
		"too many requests":     {one("1", "1e16") + one("+Inf", "1e16"), node.TroubleDamaged},
		"fewer above":           {one("1", "10") + end, node.TroubleDamaged},
		"no end":                {one("1", "1") + one("2", "2"), node.TroubleDamaged},
		"only an end":           {end, node.TroubleDamaged},
		"a bound that is none":  {one("x", "1") + end, node.TroubleDamaged},
		"a bound of NaN":        {one("NaN", "1") + end, node.TroubleDamaged},
		"without a bound":       {"rtt_seconds_bucket{a=\"b\"} 1\n" + end, node.TroubleDamaged},
		"below no time":         {one("-1", "1") + end, node.TroubleDamaged},
		"a bound of an age":     {one("1e300", "1") + end, node.TroubleDamaged},
		"bounds that are equal": {one("1e-10", "1") + one("2e-10", "1") + end, node.TroubleDamaged},
		"series with other ends": {one("1", "1") + one("2", "1") + end + "rtt_seconds_bucket{a=\"b\",le=\"1\"} 1\nrtt_seconds_bucket{a=\"b\",le=\"+Inf\"} 1\n",
			node.TroubleDamaged},
		"a torn line":      {"rtt_seconds_bucket{le=\"1", node.TroubleDamaged},
		"many buckets":     {many.String() + end, node.TroubleTooLarge},
		"10,000 series":    {large.String(), node.TroubleTooLarge},
		"an endless line":  {strings.Repeat("x", maxLine+1), node.TroubleTooLarge},
		"not its own line": {"a\x00b\n" + one("2", "2"), node.TroubleDamaged},
	} {
		got, err := parse(strings.NewReader(tc.text), want(nil).Series)
		if err == nil || fetch.TroubleOf(err) != tc.want || got.Counts != nil {
			t.Errorf("%s: %+v, %v; want %s", name, got, err, tc.want)
		}
	}
}

// FuzzParse checks that no answer makes a histogram that cannot be.
func FuzzParse(f *testing.F) {
	f.Add("rtt_seconds_bucket{le=\"0.1\"} 1\nrtt_seconds_bucket{le=\"+Inf\"} 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parse(strings.NewReader(text), want(nil).Series)
		if err != nil {
			return
		}
		if len(got.Bounds) == 0 || len(got.Counts) != len(got.Bounds)+1 || !slices.IsSorted(got.Bounds) || got.Bounds[0] < 0 || len(got.Bounds) > maxBuckets {
			t.Errorf("%q gave %+v", text, got)
		}
	})
}

// TestAServerThatMisbehavesCostsItsReading reads servers that are slow, lie about
// what they send or send elsewhere. None may cost more than the patience, and none
// may make the reader connect anywhere else.
func TestAServerThatMisbehavesCostsItsReading(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	plain := func(w http.ResponseWriter) http.ResponseWriter {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		return w
	}
	const good = "rtt_seconds_bucket{le=\"1\"} 1\nrtt_seconds_bucket{le=\"+Inf\"} 2\n"
	for name, tc := range map[string]struct {
		handle http.HandlerFunc
		want   node.SourceTrouble
	}{
		"good":      {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(plain(w), good) }, ""},
		"redirects": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, node.TroubleRedirect},
		"fails": {func(w http.ResponseWriter, _ *http.Request) {
			plain(w).WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, good)
		}, node.TroubleStatus},
		"HTML": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, good)
		}, node.TroubleContent},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(plain(w), good)
		}, node.TroubleContent},
		"drips": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(plain(w), "a 1\n")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, node.TroubleSlow},
		"says nothing": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, node.TroubleSlow},
		"10^6 series": {func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < 1e6 && r.Context().Err() == nil; i++ {
				fmt.Fprintf(plain(w), "other{id=\"%d\"} 1\n", i)
			}
			fmt.Fprint(w, good)
		}, node.TroubleTooLarge},
		"large header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 32<<10))
			fmt.Fprint(plain(w), good)
		}, node.TroubleConnect},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tc.handle)
			defer s.Close()
			begun := time.Now()
			got := newClient(Target{Address: "127.0.0.1", Want: want(s.Listener.Addr())}).read(t.Context())
			if got.Trouble != tc.want || (tc.want == "") != (got.Counts != nil) {
				t.Errorf("%+v, want %q", got, tc.want)
			}
			if took := time.Since(begun); took > 5*fetch.Patience {
				t.Errorf("one reading took %v", took)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := want(l.Addr())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := newClient(Target{Address: "127.0.0.1", Want: gone}).read(t.Context()); got.Trouble != node.TroubleConnect {
		t.Errorf("a closed port: %+v", got)
	}
	t.Cleanup(func() {
		if elsewhere.Load() > 0 {
			t.Error("a redirection was followed")
		}
	})
}

// TestReadersFollowTheirTargets reads a real histogram, and follows an objective
// that changes, fails, is refused and ends.
func TestReadersFollowTheirTargets(t *testing.T) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rtt_seconds", Buckets: []float64{0.001, 0.005, 0.1}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(h)
	s := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer s.Close()
	h.Observe(0.002)
	r := &Readers{every: 20 * time.Millisecond}
	defer r.Close()
	web := node.Workload{ID: "shop/web", Class: node.LS}
	web.Objective.Requests = want(s.Listener.Addr())
	snapshot := node.Snapshot{Workloads: []node.Workload{web, {ID: "other"}}}
	fill := func(until func(node.Requests) bool) node.Requests {
		t.Helper()
		for range 500 {
			snapshot.At = time.Unix(1e9, 0).Add(time.Since(begun))
			snapshot.Workloads[0].Usage.Requests = node.Requests{}
			r.Fill(&snapshot)
			if got := snapshot.Workloads[0].Usage.Requests; until(got) {
				return got
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the reading stays %+v", snapshot.Workloads[0].Usage.Requests)
		return node.Requests{}
	}
	target := Target{Workload: "shop/web", Address: "127.0.0.1", Want: web.Objective.Requests}
	r.Follow([]Target{target})
	first := fill(func(q node.Requests) bool { return !q.At.IsZero() })
	if !slices.Equal(first.Counts, []uint64{0, 1, 0, 0}) || first.Trouble != "" || snapshot.At.Sub(first.At) > 5*time.Second || first.At.After(snapshot.At) {
		t.Errorf("the first reading is %+v at %v", first, snapshot.At)
	}
	h.Observe(0.2)
	r.Follow([]Target{target}) // keeps its readings
	next := fill(func(q node.Requests) bool { return q.Counts != nil && q.Counts[3] == 1 })
	if !next.At.After(first.At) || snapshot.Workloads[1].Usage.Requests.Counts != nil {
		t.Errorf("the next reading is %+v, after %+v", next, first)
	}
	s.Close()
	failed := fill(func(q node.Requests) bool { return q.Trouble != "" })
	if failed.Trouble != node.TroubleConnect || failed.At.Before(next.At) || !slices.Equal(failed.Counts, next.Counts) {
		t.Errorf("after the server has gone: %+v", failed)
	}
	for _, tc := range []struct {
		change func(*Target)
		want   node.SourceTrouble
	}{
		{func(x *Target) { x.Trouble = node.TroubleOff }, node.TroubleOff},
		{func(x *Target) { x.Address = "" }, node.TroubleNoAddress},
	} {
		x := target
		tc.change(&x)
		r.Follow([]Target{x})
		if got := fill(func(node.Requests) bool { return true }); got.Trouble != tc.want || !got.At.IsZero() {
			t.Errorf("%+v, want %s", got, tc.want)
		}
	}
	var many []Target
	for i := range maxTargets + 1 {
		many = append(many, Target{Workload: node.WorkloadID(fmt.Sprintf("a/%03d", i)), Address: "127.0.0.1", Want: target.Want})
	}
	r.Follow(append(many, target))
	if got := fill(func(node.Requests) bool { return true }); got.Trouble != node.TroubleTooMany {
		t.Errorf("one too many: %+v", got)
	}
	r.Follow(nil)
	if got := fill(func(node.Requests) bool { return true }); got.Trouble != "" || got.Counts != nil {
		t.Errorf("without an objective: %+v", got)
	}
}

var begun = time.Now()

// BenchmarkParse parses an answer of a megabyte, which has one small histogram.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	for i := 0; text.Len() < fetch.MaxAnswer-2000; i++ {
		fmt.Fprintf(&text, "other_series_with_a_name{id=\"%d\",code=\"200\"} 1\n", i)
	}
	text.WriteString("rtt_seconds_bucket{le=\"1\"} 1\nrtt_seconds_bucket{le=\"+Inf\"} 2\n")
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := parse(strings.NewReader(text.String()), want(nil).Series); err != nil {
			b.Fatal(err)
		}
	}
}
