package load

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/load/socket"
)

// Discard removes the warm-up: it computes all figures and Void from the
// intervals after it. Callers use Discard when they have found the end of the
// warm-up in the Intervals. warmup is rounded up to a whole interval. At least
// one interval must remain.
func (r *Result) Discard(warmup time.Duration) error {
	skip := int((warmup + IntervalLength - 1) / IntervalLength)
	if warmup < 0 || skip >= len(r.Intervals) {
		return fmt.Errorf("load: discard the first %v of %v: want at least %v left", warmup, time.Duration(len(r.Intervals))*IntervalLength, IntervalLength)
	}
	latency, all, fromSend, lag := newHistogram(LatencyUnit), newHistogram(LatencyUnit), newHistogram(LatencyUnit), newHistogram(lagUnit)
	var counts Counts
	var length, busy time.Duration
	var answered int64
	for i := range r.Causes {
		r.Causes[i].Count = 0
	}
	for _, i := range r.Intervals[skip:] {
		for _, f := range i.Failures {
			if f.Cause >= 0 && f.Cause < len(r.Causes) { // r may come from a file
				r.Causes[f.Cause].Count += f.Count
			}
		}
		length += i.Length
		busy += i.Busy
		answered += i.Answered
		counts.add(i.Counts)
		i.Latency.mergeInto(latency)
		i.Latency.mergeInto(all)
		i.Stalled.mergeInto(all)
		i.FromSend.mergeInto(fromSend)
		i.Lag.mergeInto(lag)
	}
	r.Warmup, r.Length = time.Duration(skip)*IntervalLength, length
	r.Counts = counts
	r.OfferedRate = float64(counts.Scheduled) / length.Seconds()
	r.AchievedRate = float64(answered) / length.Seconds()
	r.BusyRatio = busy.Seconds() / (length.Seconds() * float64(max(r.CPUs.Len(), 1)))
	r.LatencyHistogram, r.LagHistogram = latency, lag
	r.WithStalls = LatencyOf(all.Histogram, LatencyUnit)
	r.Latency, r.FromSend, r.Lag = LatencyOf(latency.Histogram, LatencyUnit), LatencyOf(fromSend.Histogram, LatencyUnit), LatencyOf(lag.Histogram, lagUnit)
	r.judge()
	return nil
}

// Part returns the measurement of the whole intervals that lie between two times.
// It shares the intervals with r. If there is none, Part returns an error.
func (r *Result) Part(from, to time.Time) (*Result, error) {
	part := *r
	part.Intervals, part.Causes = nil, slices.Clone(r.Causes) // Discard counts the causes anew
	for _, i := range r.Intervals {
		if begin := r.Started.Add(i.At); !begin.Before(from) && !begin.Add(i.Length).After(to) {
			part.Intervals = append(part.Intervals, i)
		}
	}
	if len(part.Intervals) == 0 {
		return nil, fmt.Errorf("load: no interval of the load lies between %v and %v after its begin", from.Sub(r.Started), to.Sub(r.Started))
	}
	return &part, part.Discard(0)
}

// Halves returns the latencies of all answered requests, also of the Spoiled ones:
// those that were due in the first half of the intervals, and in the second half.
func (r *Result) Halves() (early, late Packed) {
	early, late = NewPacked(), NewPacked()
	for n, i := range r.Intervals {
		into := early
		if n >= len(r.Intervals)/2 {
			into = late
		}
		for _, some := range []Packed{i.Latency, i.Stalled} {
			if some.PackedHistogram != nil {
				into.Merge(some.PackedHistogram)
			}
		}
	}
	return early, late
}

func (c *Counts) add(o Counts) {
	c.Scheduled += o.Scheduled
	c.Sent += o.Sent
	c.Completed += o.Completed
	c.WaitedForConnection += o.WaitedForConnection
	c.Spoiled += o.Spoiled
	c.DueInDelay += o.DueInDelay
	c.SpoiledInDelay += o.SpoiledInDelay
	c.Errors.Add(o.Errors)
}

// judge computes Void and Hints.
func (r *Result) judge() {
	r.Void, r.Hints, r.Disturbed = nil, nil, false
	void := func(format string, args ...any) { r.Void = append(r.Void, fmt.Sprintf(format, args...)) }
	disturbed := func(format string, args ...any) {
		void(format, args...)
		r.Disturbed = true
	}
	if float64(r.Errors.Total()) > r.Limits.ErrorRatio*float64(r.Scheduled) {
		r.Void = r.Errors.Texts(r.Causes, r.GivenUp)
	}
	if r.Errors.Connect > 0 {
		r.Hints = socket.OwnLimits().Hints()
	}
	if r.Completed == 0 {
		void("no request was answered")
		return
	}
	if r.Loop != openLoop.String() {
		return
	}
	switch spoiled := r.spoiledRatio(); {
	case spoiled > r.Limits.SpoiledRatio:
		disturbed("the client itself did not run for %.0f %% of the requests, more than %.0f %%: its CPUs are taken by other work or by the hypervisor",
			100*spoiled, 100*r.Limits.SpoiledRatio)
	case r.lacksSlowRequests():
		disturbed("the client left out %.0f %% of the %d requests that were due in delays of the service, more than %.0f %%, and %.0f %% of the others: so slow requests are missing; other work or the hypervisor takes its CPUs",
			100*float64(r.SpoiledInDelay)/float64(r.DueInDelay), r.DueInDelay, 100*lackingRatio,
			100*float64(r.Spoiled-r.SpoiledInDelay)/float64(max(r.Scheduled-r.DueInDelay, 1)))
	case r.p90Apart():
		disturbed("P90 is %s with all requests, and %s without the %.1f %% that stalls of the client delayed: it depends on the client; its CPUs are taken by other work or by the hypervisor",
			Micros(r.WithStalls.P90), Micros(r.Latency.P90), 100*spoiled)
	}
	floor := float64(r.Limits.LagFloor) / float64(time.Microsecond)
	if own := r.Latency.P99 - r.FromSend.P99; own > max(r.Limits.LagRatio*r.Latency.P99, floor) {
		disturbed("the client sent late: %.0f of the %.0f µs of P99 are its own lag, more than %g %% (and than %g µs): give it CPUs of its own, or a lower rate",
			own, r.Latency.P99, 100*r.Limits.LagRatio, floor)
	}
	if r.BusyRatio > r.Limits.BusyRatio {
		disturbed("the client was %.0f %% busy, more than %.0f %%: requests queued inside it; give it more CPUs, or a lower rate",
			100*r.BusyRatio, 100*r.Limits.BusyRatio)
	}
	if r.Overloaded() {
		void("only %.1f %% of the offered rate was answered, less than %.0f %%: %.0f of %.0f requests per second; the service is overloaded at this rate",
			100*r.AchievedRate/r.OfferedRate, 100*r.Limits.AchievedRatio, r.AchievedRate, r.OfferedRate)
	}
}

// DependsOnStalls reports whether the latencies depend on stalls of the client: these
// delayed more requests than Limits.SpoiledRatio allows, or the P90 of all requests and
// of the others are further apart than Limits.P90Ratio.
func (r *Result) DependsOnStalls() bool {
	return r.spoiledRatio() > r.Limits.SpoiledRatio || r.p90Apart()
}

func (r *Result) spoiledRatio() float64 { return float64(r.Spoiled) / float64(max(r.Scheduled, 1)) }

// p90Apart reports whether P90 depends on the spoiled requests. It does so if these are
// the slow ones, and also if they are fast ones. A P90 of a few requests depends on
// each of them.
func (r *Result) p90Apart() bool {
	const enough = 100 // requests, so that ten are above P90
	apart := r.WithStalls.P90 / r.Latency.P90
	return r.Spoiled > 0 && r.Completed >= enough && max(apart, 1/apart) > cmp.Or(r.Limits.P90Ratio, DefaultLimits.P90Ratio)
}

// lackingRatio is the largest share of the requests that were due in delays of the
// service (Counts.DueInDelay) that may be left out.
const lackingRatio = 0.25

// lacksSlowRequests reports whether the requests that are left out say something
// about the service: more than lackingRatio of those that were due in its delays are
// left out, and there are enough of them to change P99.
func (r *Result) lacksSlowRequests() bool {
	const enough = 0.01 // of all requests: as many as there are above P99
	missing := float64(r.SpoiledInDelay)
	return missing > lackingRatio*float64(r.DueInDelay) && missing > enough*float64(r.Scheduled)
}

// Overloaded reports whether the service answered less in the measured part than
// Limits.AchievedRatio demands. It counts for the service what a service without
// a growing queue has in work when that part ends, with three standard deviations
// of a Poisson number.
func (r *Result) Overloaded() bool {
	// An answer that the client cannot read is no sign of a queue.
	missing := (r.OfferedRate-r.AchievedRate)*r.Length.Seconds() - float64(r.Errors.Answer)
	inWork := r.inWork()
	return missing > (1-r.Limits.AchievedRatio)*float64(r.Scheduled)+inWork+3*math.Sqrt(max(inWork, 1))
}

// inWork returns how many requests the service has in work at a time if their
// latency is that of the first ones (Little's law: the rate times the latency).
// It looks at the begin of the warm-up, because under overload the latency grows
// from there on. If even the first latencies are longer than half of the measured
// part, they are those of a queue.
func (r *Result) inWork() float64 {
	const enough = 20 // for a mean
	var sum, n float64
	for _, i := range r.Intervals {
		if i.Mean > 0 && n < enough {
			n += float64(i.Completed)
			sum += i.Mean * float64(i.Completed)
		}
	}
	latency := sum / max(n, 1) * float64(LatencyUnit) / float64(time.Second)
	return min(r.OfferedRate*latency, float64(r.Scheduled)/2)
}
