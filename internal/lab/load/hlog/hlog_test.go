package hlog

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

// resultOf returns a run of 3.5 s with a request in each ms, whose latencies are 1,
// 2, 3 and so on. Those of the ms 1100 to 1104 are apart, because the client stood.
func resultOf(t *testing.T) *load.Result {
	t.Helper()
	r := &load.Result{Loop: "open", Limits: load.DefaultLimits, Started: time.Unix(1000000000, 0).UTC()}
	for at := range 35 {
		i := load.Interval{At: time.Duration(at) * load.IntervalLength, Length: load.IntervalLength, Latency: load.NewPacked(), Stalled: load.NewPacked()}
		for k := range 100 {
			ms, to := 100*at+k, i.Latency
			if ms >= 1100 && ms < 1105 {
				to = i.Stalled
			}
			if err := to.RecordValue(int64(ms + 1)); err != nil {
				t.Fatal(err)
			}
		}
		i.Scheduled, i.Completed, i.Answered = 100, 100, 100
		r.Intervals = append(r.Intervals, i)
	}
	return r
}

func TestALogKeepsTheDistribution(t *testing.T) {
	r := resultOf(t)
	if err := r.Discard(time.Second); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := Write(&log, r); err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string]int{"Tag=warmup,": 1, "Tag=stalled,1.000,1.000,": 1} {
		if n := strings.Count(log.String(), tag); n != want {
			t.Errorf("%d lines with %s, want %d:\n%s", n, tag, want, log.String())
		}
	}
	sum, intervals, err := Read(&log)
	if err != nil {
		t.Fatal(err)
	}
	if len(intervals) != 3 || sum.TotalCount() != 2495 || !sum.Equals(r.LatencyHistogram.Histogram) {
		t.Errorf("%d intervals with %d values; want 3 with 2495, and the same distribution", len(intervals), sum.TotalCount())
	}
}

func TestReadRefusesWhatIsNoLog(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "only comments": "#[x]\n", "only warm-up": "Tag=warmup,0.000,1.000,0.1,HISTFAAAABF42pNpmSzMwMDAAAAGsgDj\n", "broken histogram": "0.0,1.0,0.1,HISTFAAAA\n",
		"NUL bytes": strings.Repeat("\x00", 16<<10) + "\n",
	} {
		if _, _, err := Read(strings.NewReader(text)); err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	r := &load.Result{URL: "http://a/", Intervals: []load.Interval{{Length: load.IntervalLength, Latency: load.NewPacked()}}}
	if err := r.Intervals[0].Latency.RecordValue(5); err != nil {
		f.Fatal(err)
	}
	var log bytes.Buffer
	if err := Write(&log, r); err != nil {
		f.Fatal(err)
	}
	f.Add(log.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		if sum, intervals, err := Read(bytes.NewReader(text)); err == nil && (sum == nil || len(intervals) == 0) {
			t.Error("neither a log nor an error")
		}
	})
}
