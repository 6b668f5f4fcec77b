package report

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/stat"
)

// RungModes are the modes that pin a rung of the isolation ladder, from the
// weakest up.
var RungModes = []Mode{TenonWeight, TenonIdle, TenonSiblings, TenonCoreSched, TenonSCX, TenonVendor}

// Traced is what the kernel's own record of its scheduler says about the tested
// CPUs. It is made after the measured part, under the same load: a record of
// every switch costs time.
type Traced struct {
	Length time.Duration `json:"length_ns"`
	LSTime time.Duration `json:"ls_time_ns"` // CPU time of the service
	BETime time.Duration `json:"be_time_ns"`
	// Beside is the part of LSTime in which BE ran on the same core, and Starts
	// how often BE began to run while LS had been there for a while.
	Beside time.Duration `json:"be_beside_ls_ns"`
	Starts int           `json:"be_starts_beside_ls"`
	// Wakes is how often a thread of the service was woken; the percentiles are
	// of how long it took until it ran.
	Wakes   int     `json:"ls_wakes"`
	WakeP50 float64 `json:"ls_wake_delay_p50_us"`
	WakeP90 float64 `json:"ls_wake_delay_p90_us"`
	WakeP99 float64 `json:"ls_wake_delay_p99_us"`
}

// A TracedResult is what the record showed of one mode: medians over the blocks
// whose valid run has one.
type TracedResult struct {
	// Beside is the share of the service's CPU time in which BE ran on the same
	// core; null where tested CPUs do not share cores.
	Beside     Number `json:"be_beside_ls_ratio"`
	StartsPerS Number `json:"be_starts_beside_ls_per_second"`
	WakeP50    Number `json:"ls_wake_delay_p50_us"`
	WakeP90    Number `json:"ls_wake_delay_p90_us"`
	WakeP99    Number `json:"ls_wake_delay_p99_us"`
}

// traced makes a metric of what the record of a run says.
func traced(value func(Traced) float64) metric {
	return func(r Run) float64 {
		if r.Traced == nil || r.Traced.Length <= 0 {
			return known(0, false)
		}
		return value(*r.Traced)
	}
}

// beside is the share of the service's CPU time with BE on the same core.
func (ev evidence) beside() metric {
	return traced(func(t Traced) float64 {
		return known(t.Beside.Seconds()/t.LSTime.Seconds(), ev.Siblings && t.LSTime > 0)
	})
}

// wakes makes a metric of a percentile of the wake-up delay.
func wakes(value func(Traced) float64) metric {
	return traced(func(t Traced) float64 { return known(value(t), t.Wakes > 0) })
}

var wakeP90 = wakes(func(t Traced) float64 { return t.WakeP90 })

func (ev evidence) tracedSummary(mode Mode) *TracedResult {
	if !slices.ContainsFunc(ev.runs(mode), func(r Run) bool { return r.Traced != nil }) {
		return nil
	}
	median := func(m metric) Number { return Number(stat.Median(ev.sample(mode, m))) }
	return &TracedResult{
		Beside: median(ev.beside()),
		StartsPerS: median(traced(func(t Traced) float64 {
			return known(float64(t.Starts)/t.Length.Seconds(), ev.Siblings)
		})),
		WakeP50: median(wakes(func(t Traced) float64 { return t.WakeP50 })),
		WakeP90: median(wakeP90),
		WakeP99: median(wakes(func(t Traced) float64 { return t.WakeP99 })),
	}
}

// rungs are the modes of the experiment that pin a rung, from the weakest up.
func (ev evidence) rungs() []Mode {
	return slices.DeleteFunc(slices.Clone(RungModes), func(m Mode) bool { return !ev.asked(m) })
}

// rungClaims judges the modes that pin a rung: each against the service alone,
// and the strongest against what Kubernetes does.
func (ev evidence) rungClaims(resolution stat.Resolution) []Claim {
	rungs := ev.rungs()
	if len(rungs) == 0 {
		return nil
	}
	var out []Claim
	for _, mode := range rungs {
		out = append(out, ev.asAlone(mode, fmt.Sprintf("%s raises P99 by at most %s against %s", mode, limit(ev.Margin), Exclusive), resolution))
	}
	strongest := rungs[len(rungs)-1]
	for _, plain := range []Mode{Default, Burstable} {
		if ev.asked(plain) {
			out = append(out,
				ev.comparison(plain, strongest, "P99", percentiles["p99"], ev.Margin, &resolution, ""),
				ev.comparison(plain, strongest, "run-queue delay", runDelay, delayMargin, nil, ""))
		}
	}
	return ev.explainTies(out)
}

// asAlone judges whether the service's P99 in a mode is that of the service
// alone, within the margin.
func (ev evidence) asAlone(mode Mode, statement string, resolution stat.Resolution) Claim {
	alone := ev.ratio(mode, Exclusive, percentiles["p99"])
	c := Claim{
		Name:        fmt.Sprintf("%s-as-%s", mode, Exclusive),
		Statement:   statement,
		Numbers:     map[string]Interval{"to_exclusive": intervalOf(alone)},
		Explanation: bounded(fmt.Sprintf("P99, %s to %s", mode, Exclusive), alone),
	}
	if lacking := ev.lacking(Exclusive, ExclusiveAA); len(lacking) > 0 {
		return c.refuse(lacking)
	}
	c = c.with(stat.NonInferior(alone, resolution, ev.Margin))
	if c.Verdict == stat.Refused {
		c.Explanation = ev.refusal(resolution) + " " + c.Explanation
	}
	return c
}
