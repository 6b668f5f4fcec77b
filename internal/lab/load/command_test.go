package load

import (
	"strings"
	"testing"
	"time"
)

func TestLatenciesOfACommand(t *testing.T) {
	at := time.Unix(1000, 0)
	now := func() time.Time { at = at.Add(50 * time.Millisecond); return at }
	text := "connected to 127.0.0.1\n" + strings.Repeat("900 set\n", 4) + strings.Repeat("1.5ms get\n", 10) + strings.Repeat("7s too late\n", 10) + "0.1 cut"
	r, err := FromLines(strings.NewReader(text), 200*time.Millisecond, 500*time.Millisecond, now)
	if err != nil {
		t.Fatal(err)
	}
	// A line comes every 50 ms. So there are four lines in the warm-up, and ten
	// in the measured part.
	if r.Completed != 10 || r.Latency.P50 < 1499 || r.Latency.Max > 1501 || len(r.Void) > 0 || r.Warmup != 200*time.Millisecond {
		t.Errorf("%d latencies, P50 %v, max %v µs, warm-up %v, void %q", r.Completed, r.Latency.P50, r.Latency.Max, r.Warmup, r.Void)
	}
	if _, err := FromLines(strings.NewReader("usage: bench HOST\n"), 0, time.Second, time.Now); err == nil || !strings.Contains(err.Error(), "begins with a latency") {
		t.Errorf("a command that prints no latency: error %v", err)
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
