package report

import (
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/wrk"
)

// TestTheReasonsOfTheClientHaveACause makes the client's reasons why a run is
// void, one by one. Package load may change their texts, so the causes are
// checked against it.
func TestTheReasonsOfTheClientHaveACause(t *testing.T) {
	packed := func(value int64) load.Packed {
		p := hdrhistogram.NewPacked(1, 60_000_000, 3)
		_ = p.RecordValues(value, 1000)
		return load.Packed{PackedHistogram: p}
	}
	for name, c := range map[string]struct {
		edit  func(*load.Interval)
		cause Cause
	}{
		"good":                  {func(*load.Interval) {}, NotVoid},
		"overloaded":            {func(i *load.Interval) { i.Answered = 900 }, Failed},
		"nothing answered":      {func(i *load.Interval) { i.Answered, i.Completed = 0, 0 }, Failed},
		"a lost connection":     {func(i *load.Interval) { i.Errors.Read = 1 }, Failed},
		"a refused write":       {func(i *load.Interval) { i.Errors.Write = 1 }, Failed},
		"a status":              {func(i *load.Interval) { i.Errors.Status = 1 }, Failed},
		"a timeout":             {func(i *load.Interval) { i.Errors.Timeout = 1 }, Failed},
		"unsent":                {func(i *load.Interval) { i.Errors.Unsent = 1 }, Failed},
		"the client stood":      {func(i *load.Interval) { i.Spoiled = 500 }, Disturbed},
		"slow ones are missing": {func(i *load.Interval) { i.Spoiled, i.DueInDelay, i.SpoiledInDelay = 200, 200, 180 }, Disturbed},
		"the client is busy":    {func(i *load.Interval) { i.Busy = i.Length }, Disturbed},
		"the client is late":    {func(i *load.Interval) { i.Latency = packed(5000) }, Disturbed},
		"late and overloaded": {func(i *load.Interval) {
			i.Latency = packed(5000)
			i.Answered = 900
		}, Disturbed},
	} {
		i := load.Interval{
			Length: time.Second, Counts: load.Counts{Scheduled: 1000, Sent: 1000, Completed: 1000}, Answered: 1000, Mean: 100,
			Latency: packed(100), FromSend: packed(100),
		}
		c.edit(&i)
		r := load.Result{Loop: "open", Limits: load.DefaultLimits, Intervals: []load.Interval{i}}
		if err := r.Discard(0); err != nil {
			t.Fatal(err)
		}
		if got := (Run{Void: r.Void}).VoidCause(); got != c.cause {
			t.Errorf("%s: the cause of %q is %q, want %q", name, r.Void, got, c.cause)
		}
	}
}

// TestTheReasonsOfWrkHaveACause reads outputs of wrk with one fault each.
func TestTheReasonsOfWrkHaveACause(t *testing.T) {
	const output = `Running 10s test @ http://127.0.0.1:8000/
  1 threads and 9 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   636.00us    0.89ms  12.92ms   93.69%
    Req/Sec    56.20k     8.07k   62.00k    86.54%
  Latency Distribution
     50%  250.00us
     75%  491.00us
     90%  700.00us
     99%    5.80ms
  22464657 requests in 10.00s, 17.76GB read
`
	const rates = "Requests/sec: 748868.53\nTransfer/sec:    606.33MB\n"
	for fault, want := range map[string]Cause{
		"": NotVoid,
		"  Socket errors: connect 0, read 3, write 0, timeout 0\n": Failed,
		"  Socket errors: connect 0, read 0, write 3, timeout 0\n": Failed,
		"  Socket errors: connect 0, read 0, write 0, timeout 3\n": Failed,
		"  Socket errors: connect 3, read 0, write 0, timeout 0\n": NotItsMode,
		"  Non-2xx or 3xx responses: 5\n":                          Failed,
	} {
		r, err := wrk.Parse(output + fault + rates)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Run{Void: r.Void}).VoidCause(); got != want {
			t.Errorf("%q: the cause of %q is %q, want %q", fault, r.Void, got, want)
		}
	}
}

func TestARunThatDidNotMeasureItsModeHasNoOtherCause(t *testing.T) {
	for _, reasons := range [][]string{
		{"not at equal utilisation: 60.0 % of the tested CPUs, tenon-65 uses 65.0 %"},
		{"no request was answered", "Tenon changed nothing, so the run does not measure its mode"},
	} {
		if got := (Run{Void: reasons}).VoidCause(); got != NotItsMode {
			t.Errorf("the cause of %q is %q", reasons, got)
		}
	}
}
