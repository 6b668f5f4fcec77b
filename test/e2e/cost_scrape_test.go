package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// freeAddress returns an unused address of loopback.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// scrape returns the metrics of an agent. The keys are the names with their
// labels, as in the text format.
func scrape(tb testing.TB, address string) map[string]float64 {
	tb.Helper()
	r, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Body.Close()
	all := map[string]float64{}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if v, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil {
			all[lines.Text()[:at]] = v
		}
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// reportTurns reports the cost of a tick between two scrapes: how long each
// part takes, and the allocations. The time is wall-clock time, so it includes
// waits for other work on the machine.
func reportTurns(b *testing.B, before, after map[string]float64) {
	b.Helper()
	grew := func(name string) float64 { return after[name] - before[name] }
	turns := grew(`tenon_tick_duration_seconds_count{part="sense"}`)
	if turns <= 0 {
		b.Fatal("the loop made no tick")
	}
	b.ReportMetric(turns/costSpan.Seconds(), "ticks/s") // more than one per second, because other processes make and remove cgroups
	for _, part := range []string{"sense", "decide", "act"} {
		b.ReportMetric(1e3*grew(fmt.Sprintf("tenon_tick_duration_seconds_sum{part=%q}", part))/turns, part+"-ms/tick")
	}
	b.ReportMetric(grew("go_memstats_alloc_bytes_total")/1024/turns, "KiB/tick")
	b.ReportMetric(grew("go_memstats_mallocs_total")/turns, "allocs/tick")
}
