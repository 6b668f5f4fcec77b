package load

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// WriteText writes r for people. It writes percentiles in the form of wrk, what
// the client measured about itself, and the reasons why the run is void.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	kind := "open loop, " + string(r.Arrival) + " arrivals"
	if r.Closed() {
		kind = "closed loop (its latencies hide stalls of the service)"
	}
	at := ""
	if !strings.Contains(r.URL, r.Address) {
		at = " (" + r.Address + ")"
	}
	fmt.Fprintf(&b, "%v of load on %s%s, %s\n", r.Length.Round(time.Millisecond), r.URL, at, kind)
	fmt.Fprintf(&b, "  %d connections, CPUs %v, warm-up %v left out\n\n", r.Connections, r.CPUs, r.Warmup)

	columns := func(name string, cells ...any) {
		fmt.Fprintf(&b, "  %-10s %9s %9s %9s %9s %9s %9s %9s\n", append([]any{name}, cells...)...)
	}
	row := func(name string, l Latency) {
		if l == (Latency{}) { // no request has this time
			columns(name, "-", "-", "-", "-", "-", "-", "-")
			return
		}
		columns(name, Micros(l.Mean), Micros(l.P50), Micros(l.P75), Micros(l.P90), Micros(l.P99), Micros(l.P999), Micros(l.Max))
	}
	columns("", "mean", "50%", "75%", "90%", "99%", "99.9%", "max")
	row("latency", r.WithStalls)
	if r.Spoiled > 0 {
		row("no stalls", r.Latency)
	}
	if r.Loop == openLoop.String() {
		row("from send", r.FromSend)
		row("client lag", r.Lag)
	}
	b.WriteString("\n")

	fmt.Fprintf(&b, "  offered    %9.1f requests/s (%d)\n", r.OfferedRate, r.Scheduled)
	// The answers of this time; Completed has those of the requests of this time.
	answered := int64(math.Round(r.AchievedRate * r.Length.Seconds()))
	also := ""
	if answered != r.Completed {
		also = fmt.Sprintf("; %d of the offered requests, some of them later", r.Completed)
	}
	fmt.Fprintf(&b, "  achieved   %9.1f requests/s (%d answered%s)\n", r.AchievedRate, answered, also)
	fmt.Fprintf(&b, "  client     %9.1f %% busy\n", 100*r.BusyRatio)
	fmt.Fprintf(&b, "  waited for a connection: %d, reconnected: %d\n", r.WaitedForConnection, r.Reconnects)
	if r.Spoiled > 0 {
		fmt.Fprintf(&b, "  row no stalls leaves out %d requests that were due while the client's own CPU stood still\n", r.Spoiled)
	}
	for _, line := range r.Errors.Texts(r.Causes, r.GivenUp) {
		if !slices.Contains(r.Void, line) {
			b.WriteString("  " + line + "\n")
		}
	}
	if len(r.Void) > 0 {
		b.WriteString("\nThis run is void:\n")
	}
	for _, line := range r.Void {
		b.WriteString("  - " + line + "\n")
	}
	for _, line := range r.Hints {
		b.WriteString("    " + line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Micros prints a number of microseconds as a duration with a suitable unit.
func Micros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2fs", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.2fms", us/1e3)
	case us >= 100:
		return fmt.Sprintf("%.0fµs", us)
	}
	return fmt.Sprintf("%.1fµs", us)
}
