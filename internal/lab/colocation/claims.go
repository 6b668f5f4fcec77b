package colocation

import (
	"fmt"

	"tenon.sh/tenon/internal/lab/claim"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// The thresholds of the claims. The margin of the P99 is not here, because it
// is configured.
const (
	goodputShare     = 0.90 // least rate of the batch work, relative to idle CPU × its rate per CPU alone
	burstableFactor  = 5.0  // least ratio of the service's waiting in burstable to its waiting in tenon
	fullCPUPercent   = 90.0 // lowest CPU use in mode tenon
	equalUtilisation = 3.0  // largest difference in CPU use between default-65 and tenon-65, in percentage points
)

// comparedMeasures lists the measures by which two modes are compared.
var comparedMeasures = []report.Measure{report.P90, report.P99, report.WaitingTime}

// claims judges the claims that are possible with the modes of the experiment,
// beginning with the most important one. The first claims about tenon's
// latency, and the claim about goodput, are the primary claims: they were
// chosen before the measurement.
func claims(ev report.Evidence) []report.Claim {
	var out []report.Claim
	for _, mode := range []report.Mode{report.Tenon, report.Tenon65} {
		if ev.Asked(mode) {
			out = append(out, claim.InOrder(report.Latencies, func(m report.Measure) report.Claim { return tailClaim(ev, mode, m) })...)
		}
	}
	if ev.Asked(report.Tenon) {
		out = append(out, goodputClaim(ev), cpuClaim(ev), waitingClaim(ev))
		if ev.Asked(report.Burstable) {
			out = append(out, burstableClaim(ev))
		}
	}
	var pairs []claim.Pair
	if ev.Asked(report.Default65) && ev.Asked(report.Tenon65) {
		equal := utilisationClaim(ev)
		note := ""
		if equal.Verdict != stat.Met {
			note = "The two modes were not shown to use equally much CPU, so this is no comparison at equal utilisation. "
		}
		out = append(out, equal)
		pairs = append(pairs, claim.Pair{Plain: report.Default65, Tenon: report.Tenon65, Measures: comparedMeasures, Note: note})
	}
	for _, plain := range []report.Mode{report.Default} {
		if ev.Asked(plain) && ev.Asked(report.Tenon) {
			pairs = append(pairs, claim.Pair{Plain: plain, Tenon: report.Tenon, Measures: comparedMeasures})
		}
	}
	known := len(pairs) * len(comparedMeasures) // comparisons whose ties have a known reason
	pairs = append(pairs, namedPairs(ev)...)
	pairs = append(pairs, sessionPairs(ev)...)
	comparisons := claim.Comparisons(ev, pairs)
	return append(claim.ExplainTies(ev, append(out, comparisons[:known]...)), comparisons[known:]...)
}

// namedPairs compares the modes default and tenon with two others: the baseline
// whose spinner has the least weight, and Tenon without long slices.
func namedPairs(ev report.Evidence) []claim.Pair {
	var pairs []claim.Pair
	for _, plain := range []report.Mode{report.ExclusiveAwake, report.TenonNoSlices} {
		for _, mode := range []report.Mode{report.Default, report.Tenon} {
			if ev.Asked(plain) && ev.Asked(mode) {
				pairs = append(pairs, claim.Pair{Plain: plain, Tenon: mode, Measures: comparedMeasures})
			}
		}
	}
	return pairs
}

// sessionPairs returns the comparisons of the modes without cgroups. They show
// what nice and SCHED_IDLE change, and how they compare with Tenon.
func sessionPairs(ev report.Evidence) []claim.Pair {
	var pairs []claim.Pair
	for _, m := range report.SessionModes {
		if m != report.Plain && ev.Asked(m) && ev.Asked(report.Plain) {
			pairs = append(pairs, claim.Pair{Plain: report.Plain, Tenon: m, Measures: comparedMeasures})
		}
		if ev.Asked(m) && ev.Asked(report.Tenon) {
			pairs = append(pairs, claim.Pair{Plain: m, Tenon: report.Tenon, Measures: comparedMeasures})
		}
	}
	return pairs
}

func tailClaim(ev report.Evidence, mode report.Mode, m report.Measure) report.Claim {
	resolution := ev.Resolution(m)
	cold, warm := ev.Ratio(mode, report.Exclusive, m.Of), ev.Ratio(mode, report.ExclusiveWarm, m.Of)
	c := report.Claim{
		Name:      string(mode) + "-" + m.Key,
		Statement: fmt.Sprintf("%s raises %s by at most %s, against the harder of %s and %s", mode, m.Name, report.Limit(ev.Margin), report.Exclusive, report.ExclusiveWarm),
		Numbers: map[string]report.Interval{
			"to_exclusive": cold, "to_exclusive_warm": warm, "aa_control": resolution.Control,
		},
		About: []report.Mode{mode, report.Exclusive, report.ExclusiveWarm, report.ExclusiveAA}, Favours: []report.Mode{mode},
	}
	measured := claim.Bounded("To "+string(report.Exclusive), cold) + " " + claim.Bounded("To "+string(report.ExclusiveWarm), warm)
	c.Explanation = measured
	if lacking := ev.Lacking(report.Exclusive, report.ExclusiveWarm, report.ExclusiveAA); len(lacking) > 0 {
		return c.Refuse(lacking)
	}
	c.Verdict = worseVerdict(stat.NonInferior(cold, resolution, ev.Margin), stat.NonInferior(warm, resolution, ev.Margin))
	switch {
	case c.Verdict == stat.Refused:
		c.Explanation = claim.Refusal(ev, m) + " " + measured
	case cold.Upper > warm.Upper:
		c.Explanation += fmt.Sprintf(" The harder baseline is %s.", report.Exclusive)
	default:
		c.Explanation += fmt.Sprintf(" The harder baseline is %s.", report.ExclusiveWarm)
	}
	if stat.NonInferior(cold, resolution, ev.Margin) == stat.Met && c.Verdict != stat.Met {
		c.Explanation += fmt.Sprintf(" Against %s the claim is met; %s itself is to %s: %s, because the CPU of the latter never idles.",
			report.Exclusive, report.Exclusive, report.ExclusiveWarm, report.FormatRatio(ev.Ratio(report.Exclusive, report.ExclusiveWarm, m.Of)))
	}
	if cold.High < 1 {
		c.Explanation += fmt.Sprintf(" A CPU that never idles need not be woken up; how much of %s being faster than %s is only that, %s shows.", mode, report.Exclusive, report.ExclusiveWarm)
	}
	return c
}

// worseVerdict returns the worse one of two verdicts. Claims against two
// baselines need it, because they must hold against both.
func worseVerdict(a, b stat.Verdict) stat.Verdict {
	for _, v := range []stat.Verdict{stat.NotMet, stat.Refused, stat.Undecided} {
		if a == v || b == v {
			return v
		}
	}
	return stat.Met
}

func waitingClaim(ev report.Evidence) report.Claim {
	m := report.WaitingTime
	e, resolution := ev.Ratio(report.Tenon, report.ExclusiveWarm, m.Of), ev.Resolution(m)
	c := report.Claim{
		Name:      "tenon-waiting",
		Statement: fmt.Sprintf("%s raises the time that the service waits for a CPU by at most %s against %s", report.Tenon, report.Limit(m.Margin), report.ExclusiveWarm),
		Numbers: map[string]report.Interval{
			"to_exclusive_warm": e, "to_exclusive": ev.Ratio(report.Tenon, report.Exclusive, m.Of), "aa_control": resolution.Control,
		},
		Explanation: claim.Bounded(fmt.Sprintf("Waiting of all service threads per second, %s to %s", report.Tenon, report.ExclusiveWarm), e),
		About:       []report.Mode{report.Tenon, report.ExclusiveWarm, report.ExclusiveAA, report.Exclusive}, Favours: []report.Mode{report.Tenon},
	}
	if lacking := ev.Lacking(report.ExclusiveWarm, report.Exclusive, report.ExclusiveAA); len(lacking) > 0 {
		return c.Refuse(lacking)
	}
	c.Verdict = stat.NonInferior(e, resolution, m.Margin)
	if c.Verdict == stat.Refused {
		c.Explanation = claim.Refusal(ev, m) + " " + c.Explanation
	}
	return c
}

func goodputClaim(ev report.Evidence) report.Claim {
	frames := ev.Sample(report.Tenon, func(r report.Run) float64 { return r.FramesPerS })
	e := stat.Ratio(frames, ev.IdleCapacity(report.Exclusive), ev.Rule)
	i := e
	c := report.Claim{
		Name:        "tenon-goodput",
		Statement:   fmt.Sprintf("In %s the batch work gets at least %.0f %% of what the idle CPU can give", report.Tenon, 100*goodputShare),
		Numbers:     map[string]report.Interval{"share_of_idle_capacity": i},
		Explanation: fmt.Sprintf("Frames per second as a share of idle CPU in %s × frame rate per CPU alone: %s.", report.Exclusive, report.Quantity(i, 100, " %")),
		About:       []report.Mode{report.Tenon, report.Exclusive, report.Solo}, Favours: []report.Mode{report.Tenon},
	}
	if len(ev.Lacking(report.ExclusiveWarm)) == 0 {
		// For the same requests, the kernel charges the service more or less
		// CPU time, depending on whether the CPU sleeps between them. The batch
		// work does not cause this difference.
		warm := stat.Ratio(frames, ev.IdleCapacity(report.ExclusiveWarm), ev.Rule)
		service := func(r report.Run) float64 { return report.Positive(r.LSCPU) }
		charged := ev.Ratio(report.ExclusiveWarm, report.Exclusive, service)
		c.Numbers["share_of_warm_idle_capacity"], c.Numbers["warm_service_cpu_ratio"] = warm, charged
		c.Explanation += fmt.Sprintf(" Of what %s leaves idle: %s.", report.ExclusiveWarm, report.Quantity(warm, 100, " %"))
		if charged.Low > 1 {
			c.Explanation += fmt.Sprintf(" On a CPU that never sleeps the service itself is charged %s times the CPU for the same requests.", report.FormatNumber(charged.Value, 2))
		}
	}
	if lacking := ev.Lacking(report.Exclusive); len(lacking) > 0 {
		return c.Refuse(lacking)
	}
	if !ev.Asked(report.Solo) && !(ev.SoloFramesPerSecond > 0 && ev.SoloCPU > 0) {
		c.Verdict, c.Final = stat.Refused, true
		c.Explanation = "The rate of the batch work alone was not measured."
		return c
	}
	c.Explanation += claim.TooFew(e)
	return c.With(stat.AtLeast(e, goodputShare))
}

func cpuClaim(ev report.Evidence) report.Claim {
	e := stat.Mean(ev.Sample(report.Tenon, report.CPUPercent), ev.Rule)
	i := e
	i.High, i.Upper = min(i.High, 100), min(i.Upper, 100)
	return report.Claim{
		Name:        "tenon-cpu",
		Statement:   fmt.Sprintf("In %s the tested CPUs are at least %.0f %% busy", report.Tenon, fullCPUPercent),
		Numbers:     map[string]report.Interval{"cpu_percent": i},
		Explanation: fmt.Sprintf("Busy share of the tested CPUs, mean over blocks: %s.", report.Quantity(i, 1, " %")) + claim.TooFew(e),
		About:       []report.Mode{report.Tenon}, Favours: []report.Mode{report.Tenon},
	}.With(stat.AtLeast(e, fullCPUPercent))
}

func burstableClaim(ev report.Evidence) report.Claim {
	e := ev.Ratio(report.Burstable, report.Tenon, report.Waiting)
	i := e
	return report.Claim{
		Name:      "burstable-waiting",
		Statement: fmt.Sprintf("Under %s the service waits more than %.0f times as long for a CPU as under %s", report.Burstable, burstableFactor, report.Tenon),
		Numbers:   map[string]report.Interval{"burstable_to_tenon": i},
		Explanation: fmt.Sprintf("Waiting per second, %s to %s: %s; lower bound of the claim %s.",
			report.Burstable, report.Tenon, report.Quantity(i, 1, " times as long"), report.FormatNumber(report.Number(e.ClaimLower), 1)) + claim.TooFew(e),
		About: []report.Mode{report.Burstable, report.Tenon}, Favours: []report.Mode{report.Tenon},
	}.With(stat.AtLeast(e, burstableFactor))
}

func utilisationClaim(ev report.Evidence) report.Claim {
	e := stat.Difference(ev.Sample(report.Default65, report.CPUPercent), ev.Sample(report.Tenon65, report.CPUPercent), ev.Rule)
	i := e
	return report.Claim{
		Name:        "equal-utilisation",
		Statement:   fmt.Sprintf("%s and %s use equally much CPU, within %.0f points", report.Default65, report.Tenon65, equalUtilisation),
		Numbers:     map[string]report.Interval{"points": i},
		Explanation: fmt.Sprintf("CPU of the tested CPUs, %s − %s: %s.", report.Default65, report.Tenon65, report.Quantity(i, 1, " points")) + claim.TooFew(e),
		About:       []report.Mode{report.Default65, report.Tenon65}, Favours: []report.Mode{report.Default65, report.Tenon65},
	}.With(worseVerdict(stat.AtMost(e, equalUtilisation), stat.AtLeast(e, -equalUtilisation)))
}
