package colocation

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/lab/claim"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// metric makes a metric from a function that returns a value of a run's trace.
func (c fullExperiment) metric(value func(Traced) float64) report.Metric {
	return func(r report.Run) float64 {
		t := c.traced[r.Index]
		if t == nil || t.Length <= 0 {
			return report.KnownOrNaN(0, false)
		}
		return value(*t)
	}
}

// sharedCoreMetric returns a metric: the share of the service's CPU time in
// which BE ran on the same core.
func (c fullExperiment) sharedCoreMetric() report.Metric {
	return c.metric(func(t Traced) float64 {
		return report.KnownOrNaN(t.Beside.Seconds()/t.LSTime.Seconds(), c.experiment.Siblings && t.LSTime > 0)
	})
}

// wakes makes a metric from a function that returns a percentile of the wake-up
// delay.
func (c fullExperiment) wakes(value func(Traced) float64) report.Metric {
	return c.metric(func(t Traced) float64 { return report.KnownOrNaN(value(t), t.Wakes > 0) })
}

func (c fullExperiment) wakeP90() report.Metric {
	return c.wakes(func(t Traced) float64 { return t.WakeP90 })
}

// tracedSummary summarises the traces of a mode. It returns nil if the mode has
// no trace.
func (c fullExperiment) tracedSummary(ev report.Evidence, mode report.Mode) *TracedResult {
	if !slices.ContainsFunc(ev.Runs(mode), func(r report.Run) bool { return c.traced[r.Index] != nil }) {
		return nil
	}
	median := func(m report.Metric) report.Number { return report.Number(stat.Median(ev.Sample(mode, m))) }
	return &TracedResult{
		Beside: median(c.sharedCoreMetric()),
		StartsPerS: median(c.metric(func(t Traced) float64 {
			return report.KnownOrNaN(float64(t.Starts)/t.Length.Seconds(), c.experiment.Siblings)
		})),
		WakeP50: median(c.wakes(func(t Traced) float64 { return t.WakeP50 })),
		WakeP90: median(c.wakeP90()),
		WakeP99: median(c.wakes(func(t Traced) float64 { return t.WakeP99 })),
	}
}

func mechanismsOf(ev report.Evidence) []report.Mode {
	return slices.DeleteFunc(slices.Clone(report.MechanismModes), func(m report.Mode) bool { return !ev.Asked(m) })
}

// mechanismClaims judges the modes in which Tenon uses one given mechanism. It
// compares each of them with the service alone. It also compares the mode of
// the strongest mechanism with Kubernetes without Tenon.
func mechanismClaims(ev report.Evidence) []report.Claim {
	mechanisms := mechanismsOf(ev)
	if len(mechanisms) == 0 {
		return nil
	}
	var out []report.Claim
	for _, mode := range mechanisms {
		out = append(out, claim.InOrder([]report.Measure{report.P90, report.P99}, func(m report.Measure) report.Claim {
			return claim.AsAlone(ev, mode, m, fmt.Sprintf("%s raises %s by at most %s against %s", mode, m.Name, report.Limit(ev.Margin), report.Exclusive))
		})...)
	}
	strongest := mechanisms[len(mechanisms)-1]
	var pairs []claim.Pair
	for _, plain := range []report.Mode{report.Default, report.Burstable} {
		if ev.Asked(plain) {
			pairs = append(pairs, claim.Pair{Plain: plain, Tenon: strongest, Measures: comparedMeasures})
		}
	}
	return claim.ExplainTies(ev, append(out, claim.Comparisons(ev, pairs)...))
}
