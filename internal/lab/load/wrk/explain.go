package wrk

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/socket"
)

// maxOutput bounds what ReadOutput reads. One run of wrk prints less than 2 KB.
const maxOutput = 1 << 20

// parts are the lines of a complete output, in their order.
var parts = []string{"Running", "threads", "Latency", "Req/Sec", "50%", "75%", "90%", "99%", "requests", "Requests/sec", "Transfer/sec"}

// ReadOutput parses the output of one run of wrk that a user has kept. Unlike
// Parse, it accepts an output without --latency, or one from which lines were cut:
// Missing lists them. It sets Void, and Hints if there were errors.
func ReadOutput(r io.Reader) (*Result, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxOutput+1))
	if err != nil {
		return nil, fmt.Errorf("read the output of wrk: %w", err)
	}
	if len(text) > maxOutput {
		return nil, fmt.Errorf("read the output of wrk: more than %d bytes: want what one run of wrk has printed", maxOutput)
	}
	p := newParser(string(text))
	if n := p.lines["threads"]; n > 1 {
		return nil, fmt.Errorf("read the output of wrk: it has %d runs: want one", n)
	}
	if p.lines["threads"] == 0 || p.lines["requests"] == 0 {
		err := errors.New("no run of wrk 4 is in it: want the lines \"N threads and N connections\" and \"N requests in TIME, N read\"")
		if line := p.failure; line != "" {
			err = fmt.Errorf("wrk did not run: it says %.200q", line)
		}
		return nil, fmt.Errorf("read the output of wrk: %w", err)
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, fmt.Errorf("read the output of wrk: %w", err)
	}
	p.finish()
	p.result.Explain()
	return p.result, nil
}

// Explain sets Hints, which say how to prevent the errors of the run. Those about
// connections contain the present limits of this machine and process, which must
// be those of wrk.
func (r *Result) Explain() { r.explain(socket.OwnLimits()) }

func (r *Result) explain(l socket.Limits) {
	e := r.SocketErrors
	if e.Connect > 0 && r.Requests == 0 {
		r.Hints = append(r.Hints, "No connection was established: before you look at limits, ask the service once from the client machine: curl -v "+r.address())
	}
	if e.Connect > 0 {
		r.Hints = append(r.Hints, l.Hints()...)
	}
	if e.Read > 0 || e.Write > 0 {
		r.Hints = append(r.Hints, "The service closed connections under wrk: its log says why. nginx closes one after keepalive_requests requests, and refuses those beyond worker_connections.")
	}
	if e.Timeout > 0 {
		r.Hints = append(r.Hints, "Answers took longer than wrk waits: fewer connections (-c), or a longer --timeout. Requests without an answer are not in the latencies, so these look better than they are.")
	}
	if r.NonSuccess > 0 {
		r.Hints = append(r.Hints, "Answers with an error status are mostly faster than real ones: check the path of the URL, and the log of the service.")
	}
}

// address returns the URL of the run. Some documents cut the line that has it.
func (r *Result) address() string {
	if r.URL == "" {
		return "an unknown URL"
	}
	return r.URL
}

// WriteText writes r for people: its table in the form of tenon lab load, why the
// run must not be used, and how to prevent that.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	has := func(part string) bool { return !slices.Contains(r.Missing, part) }
	known := func(part, text string) string {
		if has(part) {
			return text
		}
		return "-"
	}
	fmt.Fprintf(&b, "%v of wrk on %s, closed loop: it asks nothing while it waits, so its latencies hide stalls\n", r.Length.Round(time.Millisecond), r.address())
	fmt.Fprintf(&b, "  %d threads, %d connections\n\n", r.Threads, r.Connections)
	row := func(name string, cells ...string) {
		fmt.Fprintf(&b, "  %-10s", name)
		for _, c := range cells {
			fmt.Fprintf(&b, " %9s", c)
		}
		b.WriteString("\n")
	}
	l := r.Latency
	row("", "mean", "50%", "75%", "90%", "99%", "max")
	row("latency", known("Latency", load.Micros(l.Mean)), known("50%", load.Micros(l.P50)), known("75%", load.Micros(l.P75)),
		known("90%", load.Micros(l.P90)), known("99%", load.Micros(l.P99)), known("Latency", load.Micros(l.Max)))
	fmt.Fprintf(&b, "\n  answered   %9s requests/s (%d)\n", known("Requests/sec", fmt.Sprintf("%.1f", r.RequestRate)), r.Requests)
	fmt.Fprintf(&b, "  read       %9s MiB/s\n", known("Transfer/sec", fmt.Sprintf("%.1f", r.TransferRate/(1<<20))))
	if !has("99%") {
		b.WriteString("\nThere are no percentiles: wrk prints them with --latency.\n")
	}
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			b.WriteString("\n" + title + "\n")
		}
		for _, line := range lines {
			b.WriteString("  - " + line + "\n")
		}
	}
	list("This run is void:", r.Void)
	title := "How to prevent it:"
	if r.SocketErrors.Connect > 0 {
		title = "How to prevent it (limits of this machine: they count if wrk ran here):"
	}
	list(title, r.Hints)
	_, err := io.WriteString(w, b.String())
	return err
}
