package harness

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/hlog"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// foreignMost is the largest share of the tested CPUs that work outside the
// experiment may use. Interrupts and kernel threads need some CPU.
const foreignMost = 0.15

// readingMost is the largest time from the begin or the end of the measured part
// to a reading, as a share of that part. The counters are interpolated there.
const readingMost = 0.15

// settle finds where the warm-up ends in the client's measurement, and removes
// the warm-up. asked is the minimum length of the warm-up. drifts is true if
// the latency did not become stationary.
func settle(r *load.Result, asked time.Duration) (drifts bool, err error) {
	means := make([]float64, 0, len(r.Intervals))
	for _, i := range r.Intervals {
		if i.Length == load.IntervalLength {
			means = append(means, i.Mean)
		}
	}
	cut, ok := stat.Warmup(means)
	return !ok, r.Discard(max(asked, time.Duration(cut)*load.IntervalLength))
}

// Fill copies the measurement into r, with the client's reasons why r is void.
func Fill(r *report.Run, m Measurement) {
	u := m.Used
	seconds := func(counter int) time.Duration { return time.Duration(u.Count[counter] * float64(time.Second)) }
	r.Length, r.Warmup = m.To.Sub(m.From), m.Warmup
	r.CPUPercent = 100 * u.Busy / u.capacity
	r.LSCPU, r.BECPU, r.OtherCPU, r.StealRatio = u.LS, u.BE, u.other, u.StealRatio
	r.RunDelay, r.Timeslices = seconds(RunDelay), int64(u.Count[Timeslices])
	if r.Timeslices > 0 {
		r.DelayPerRun = float64(r.RunDelay) / float64(time.Microsecond) / float64(r.Timeslices)
	}
	r.LSThrottled, r.BEThrottled = seconds(LSThrottled), seconds(BEThrottled)
	if !m.noPSI {
		r.PSICPU = u.Count[Stalled] / u.Wall
	}
	r.Series = samples(m.Readings, m.From, m.To, m.tested)
	switch {
	case m.Client != nil:
		fillOpen(r, m.Client)
	case m.Wrk != nil:
		fillWrk(r, m.Wrk)
	}
}

func fillOpen(r *report.Run, c *load.Result) {
	r.Length = c.Length
	r.Latency, r.ClientLag = c.Latency, c.Lag
	all := c.WithStalls
	r.WithStalls = &all
	r.Requests, r.ClientCPU = c.Completed, c.BusyRatio
	r.Errors = errorCounts(c.Errors.ByKind())
	cause := report.Failed
	switch {
	case len(c.Void) == 0: // there are hints at most: a few connections could not be made
		cause = report.NotItsMode
	case c.Disturbed:
		cause = report.Disturbed
	}
	r.Discard(cause, slices.Concat(c.Void, c.Hints)...)
	r.Spoiled = float64(c.Spoiled) / float64(max(c.Scheduled, 1))
	if r.Spoiled > 0.01 {
		r.Warnings = append(r.Warnings, "the client itself stood still for more than 1 % of the requests: only the rows of all requests have these")
	}
	r.Histogram = c.LatencyHistogram.Histogram
	r.Log = func(w io.Writer) error { return hlog.Write(w, c) }
}

func fillWrk(r *report.Run, w *wrk.Result) {
	r.Latency, r.Requests, r.Answered = w.Latency, w.Requests, w.RequestRate
	r.Errors = errorCounts(map[string]int64{
		"connect": w.SocketErrors.Connect, "write": w.SocketErrors.Write, "read": w.SocketErrors.Read,
		"status": w.NonSuccess, "timeout": w.SocketErrors.Timeout,
	})
	cause := report.Failed
	if w.SocketErrors.Connect > 0 { // the load was not the one asked for
		cause = report.NotItsMode
	}
	r.Discard(cause, slices.Concat(w.Void, w.Hints)...)
}

func errorCounts(all map[string]int64) map[string]int {
	var some map[string]int
	for kind, n := range all {
		if n > 0 {
			if some == nil {
				some = map[string]int{}
			}
			some[kind] = int(n)
		}
	}
	return some
}

// Judge adds to r the reasons why r is void. length is the planned length of r.
func (m Measurement) Judge(r *report.Run, stealPercent float64, length time.Duration) {
	AddDisturbances(r, m, stealPercent)
	if r.Length < length/2 {
		r.Discard(report.Disturbed, tooShort(*r))
	}
}

// AddDisturbances adds reasons to r.Void and r.Warnings if other work on the
// machine disturbed the run.
func AddDisturbances(r *report.Run, m Measurement, stealPercent float64) {
	if limit := stealPercent / 100; r.StealRatio > limit {
		r.Discard(report.Disturbed, fmt.Sprintf("the hypervisor kept %s of the tested CPUs' time (steal), more than %s", percent(r.StealRatio), percent(limit)))
	}
	if m.Used.noSteal {
		r.Discard(report.NotItsMode, "/proc/stat does not say how much time of the tested CPUs the hypervisor kept (steal)")
	}
	if share := m.Used.foreign / m.Used.capacity; share > foreignMost {
		r.Discard(report.Disturbed, fmt.Sprintf("other work used %s of the tested CPUs: stop it, or test elsewhere (--cpus; on a cluster --node)", percent(share)))
	}
	if far := m.farthest(); far > readingMost*m.To.Sub(m.From).Seconds() {
		r.Warnings = append(r.Warnings, "no reading of the counters lies near the begin or the end of the measured part: waiting, CPU and work may contain a part of the warm-up")
	}
	if m.drifts {
		r.Warnings = append(r.Warnings, "latency still drifted at the end of the warm-up")
	}
}

// farthest returns how far the nearest reading is, in seconds, from the begin or
// the end of the measured part, whichever is farther. Without readings it returns 0.
func (m Measurement) farthest() float64 {
	if len(m.Readings) == 0 {
		return 0
	}
	near := func(t time.Time) float64 {
		least := math.Inf(1)
		for _, r := range m.Readings {
			least = min(least, math.Abs(r.At.Sub(t).Seconds()))
		}
		return least
	}
	return max(near(m.From), near(m.To))
}

func tooShort(r report.Run) string {
	return fmt.Sprintf("latency took %v to settle: only %v could be measured", r.Warmup, r.Length)
}
