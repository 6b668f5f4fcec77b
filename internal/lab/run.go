package lab

import (
	"context"
	"fmt"
	"io"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// foreignMost is the share of the tested CPUs that work outside of the
// experiment may use: interrupts and the kernel's own threads need some.
const foreignMost = 0.15

// settle finds the end of the warm-up in what the client measured, at least
// asked, and discards it. drifts says that the latency had not become
// stationary.
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

// run measures one mode once.
func (b *bench) run(ctx context.Context, mode report.Mode, index, block int) (r report.Run, err error) {
	r = report.Run{Index: index, Block: block, Mode: mode, Started: time.Now(), PSICPU: -1}
	t := traitsOf(mode)
	var rate float64
	if t.paced {
		rate = b.pacer.Rate()
	}
	st, err := b.stage(ctx, t, rate)
	if err != nil {
		return r, fmt.Errorf("mode %s: %w", mode, err)
	}
	defer func() {
		if err = st.close(err); err != nil {
			err = fmt.Errorf("mode %s: %w", mode, err)
		}
	}()
	var m measurement
	if t.alone {
		m, err = st.measureAlone(ctx, b.warmup(), b.Duration)
	} else {
		m, err = st.measure(ctx, b.order(block, b.Duration))
	}
	if err != nil {
		return r, err
	}
	if b.ladder {
		var why error
		if r.Traced, why = st.trace(ctx, block); ctx.Err() != nil {
			return r, ctx.Err()
		} else if why != nil {
			r.Warnings = append(r.Warnings, "the kernel's record of its scheduler is missing: "+why.Error())
		}
	}
	if err := st.work.died(); err != nil {
		r.Void = append(r.Void, err.Error())
	} else if st.work != nil {
		// One more report, so that the end is interpolated and not guessed.
		time.Sleep(samplePeriod)
	}
	r.Frames, _ = st.work.between(m.from, m.to)
	r.FramesPerS = r.Frames / m.used.wall
	var faults []string
	r.Writes, faults = st.governor.report()
	r.Void = append(r.Void, faults...)
	if st.governor != nil {
		if err := st.governor.on(t.rung); err != nil {
			r.Void = append(r.Void, err.Error())
		}
	}
	fill(&r, m, !st.sampler.noPSI, b.place.Tested.Len())
	b.judge(&r, m, t)
	return r, nil
}

// fill copies what was counted into r.
func fill(r *report.Run, m measurement, psi bool, tested int) {
	u := m.used
	seconds := func(counter int) time.Duration { return time.Duration(u.count[counter] * float64(time.Second)) }
	r.Length, r.Warmup = m.to.Sub(m.from), m.warmup
	r.CPUPercent = 100 * u.busy / u.capacity
	r.LSCPU, r.BECPU, r.OtherCPU, r.StealRatio = u.ls, u.be, u.other, u.stealRatio
	r.RunDelay, r.Timeslices = seconds(runDelay), int64(u.count[timeslices])
	if r.Timeslices > 0 {
		r.DelayPerRun = float64(r.RunDelay) / float64(time.Microsecond) / float64(r.Timeslices)
	}
	r.LSThrottled, r.BEThrottled = seconds(lsThrottled), seconds(beThrottled)
	if psi {
		r.PSICPU = u.count[stalled] / u.wall
	}
	r.Series = samples(m.course, m.from, m.to, tested)
	switch {
	case m.client != nil:
		fillOpen(r, m.client)
	case m.wrk != nil:
		fillWrk(r, m.wrk)
	}
}

func fillOpen(r *report.Run, c *load.Result) {
	r.Length = c.Length
	r.Latency, r.ClientLag = report.Latency(c.Latency), report.Latency(c.Lag)
	r.Requests, r.ClientCPU = c.Completed, c.BusyRatio
	r.Errors = errorCounts(map[string]int64{
		"connect": c.Errors.Connect, "write": c.Errors.Write, "read": c.Errors.Read,
		"status": c.Errors.Status, "timeout": c.Errors.Timeout, "unsent": c.Errors.Unsent,
	})
	r.Void = append(append(r.Void, c.Void...), c.Hints...)
	r.Spoiled = float64(c.Spoiled) / float64(max(c.Scheduled, 1))
	if r.Spoiled > 0.01 {
		r.Warnings = append(r.Warnings, "the client itself stood still for more than 1 % of the requests, which were left out")
	}
	r.Histogram = c.LatencyHistogram.Histogram
	r.Log = func(w io.Writer) error { return load.WriteLog(w, c) }
}

func fillWrk(r *report.Run, w *load.WrkResult) {
	r.Latency, r.Requests = report.Latency(w.Latency), w.Requests
	r.Errors = errorCounts(map[string]int64{
		"connect": w.SocketErrors.Connect, "write": w.SocketErrors.Write, "read": w.SocketErrors.Read,
		"status": w.NonSuccess, "timeout": w.SocketErrors.Timeout,
	})
	r.Void = append(append(r.Void, w.Void...), w.Hints...)
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

// disturbed adds what other work on the machine did to the run.
func disturbed(r *report.Run, m measurement, stealPercent float64) {
	if limit := stealPercent / 100; r.StealRatio > limit {
		r.Void = append(r.Void, fmt.Sprintf("the hypervisor kept %s of the tested CPUs' time (steal), more than %s", percent(r.StealRatio), percent(limit)))
	}
	if share := m.used.foreign / m.used.capacity; share > foreignMost {
		r.Void = append(r.Void, fmt.Sprintf("other work used %s of the tested CPUs: stop it, or test elsewhere (--cpus; on a cluster --node)", percent(share)))
	}
	if m.drifts {
		r.Warnings = append(r.Warnings, "latency still drifted at the end of the warm-up")
	}
}

func tooShort(r report.Run) string {
	return fmt.Sprintf("latency took %v to settle: only %v could be measured", r.Warmup, r.Length)
}

// judge adds what voids the run, beside what the client found, and what is
// only worth a warning.
func (b *bench) judge(r *report.Run, m measurement, t traits) {
	disturbed(r, m, b.StealPercent)
	if r.Length < b.Duration/2 {
		r.Void = append(r.Void, tooShort(*r))
	}
	b.pacer.judge(r, t)
	if t.tenon && len(r.Writes) == 0 {
		r.Warnings = append(r.Warnings, "Tenon changed nothing: the cgroups already had what it wants, so this mode is the same as "+string(report.Default))
	}
}
