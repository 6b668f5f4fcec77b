package load

import (
	"strings"
	"testing"
	"time"
)

func TestLatenciesOfACommand(t *testing.T) {
	at := time.Unix(1000, 0)
	now := func() time.Time { at = at.Add(50 * time.Millisecond); return at }
	text := "connected to 127.0.0.1\n" + strings.Repeat("900\n", 4) + strings.Repeat("1.5ms\n", 10) + strings.Repeat("7s\n", 10) + "0.1"
	r, err := FromLines(strings.NewReader(text), 200*time.Millisecond, 500*time.Millisecond, now)
	if err != nil {
		t.Fatal(err)
	}
	// A line comes every 50 ms. So there are four lines in the warm-up, and ten
	// in the measured part.
	if r.Completed != 10 || r.Latency.P50 < 1499 || r.Latency.Max > 1501 || len(r.Void) > 0 || r.Warmup != 200*time.Millisecond {
		t.Errorf("%d latencies, P50 %v, max %v µs, warm-up %v, void %q", r.Completed, r.Latency.P50, r.Latency.Max, r.Warmup, r.Void)
	}
	if _, err := FromLines(strings.NewReader("usage: bench HOST\n"), 0, time.Second, time.Now); err == nil || !strings.Contains(err.Error(), "no line of the command holds a latency") {
		t.Errorf("a command that prints no latency: error %v", err)
	}
}

// TestLinesThatHoldNoLatencyDoNotCountAsOne prints numbers that are no latency of
// the run: an epoch, a status, a progress, a value in the wrong unit, and the
// summaries of other tools.
func TestLinesThatHoldNoLatencyDoNotCountAsOne(t *testing.T) {
	for name, c := range map[string]struct{ text, refused, void string }{
		"epoch first":          {"1700000000.123 200 0.8ms\n1700000000.140 200 0.9ms\n", `no line of the command holds a latency; the line "1700000000.123 200 0.8ms" begins with a number and holds more`, ""},
		"a status behind":      {"0.8ms\n850 200\n0.9ms\n", "", `line errors: 1 lines of the load command hold no latency of this run: a number stands first, and more follows, such as "850 200"`},
		"an epoch":             {"1700000000.123\n800\n", "", `the value is longer than the 1s of the run, such as "1700000000.123"`},
		"nanoseconds":          {"800000000\n" + "1e300\n", "", "line errors: 2 "},
		"the longest there is": {"1s\n", "", ""},
		"negative":             {"-5\nNaN\n", "no line of the command holds a latency: want one", ""},
		"progress":             {"0.8ms\n1000 requests done\n", "", `such as "1000 requests done"`},
		"wrk":                  {"Running 10s test @ http://127.0.0.1/\n  2 threads and 10 connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n  8686569 requests in 1.00m, 6.88GB read\n", "the command prints the summary of wrk: want one latency", ""},
		"hey":                  {"\nSummary:\n  Total:\t10.0 secs\n\nResponse time histogram:\n  0.001 [1]\t|\n  0.002 [100]\t|##\n", "the summary of hey or oha", ""},
		"ab":                   {"This is ApacheBench, Version 2.3 <$Revision$>\n", "the summary of ab", ""},
	} {
		at := time.Unix(1000, 0)
		now := func() time.Time { at = at.Add(time.Millisecond); return at }
		r, err := FromLines(strings.NewReader(c.text), 0, time.Second, now)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: error %v, want %q", name, err, c.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.void == "" && len(r.Void) > 0, !strings.Contains(strings.Join(r.Void, "\n"), c.void):
			t.Errorf("%s: void %q, want %q", name, r.Void, c.void)
		case r.Latency.Max > 1e6+1e3:
			t.Errorf("%s: a latency of %v µs", name, r.Latency.Max)
		}
	}
}

// TestAStallShowsInTheLatenciesOfACommand uses a load command. The command
// measures a service in open loop and prints the latencies. A stall of the
// service must show in them.
func TestAStallShowsInTheLatenciesOfACommand(t *testing.T) {
	at, n := time.Unix(1000, 0), 0
	now := func() time.Time { at = at.Add(time.Millisecond); return at }
	var lines strings.Builder
	for ; n < 1200; n++ {
		late := max(200-n%1000, 0) // the service answers nothing for 200 ms in each second
		lines.WriteString((time.Duration(late)*time.Millisecond + 100*time.Microsecond).String() + "\n")
	}
	r, err := FromLines(strings.NewReader(lines.String()), 0, 1200*time.Millisecond, now)
	if err != nil {
		t.Fatal(err)
	}
	if r.Latency.P99 < 150e3 || r.Latency.P50 > 200 {
		t.Errorf("P50 %v, P99 %v µs", r.Latency.P50, r.Latency.P99)
	}
}
