package report

import (
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/stat"
)

// What the experiment sets out to show, besides the margin of the tail, which is the experiment's.
const (
	delayMargin      = 1.10 // run-queue delay of tenon to exclusive-warm, at most
	goodputShare     = 0.90 // of idle CPU × solo rate, at least
	burstableFactor  = 5.0  // run-queue delay of burstable to tenon, at least
	fullCPUPercent   = 90.0 // CPU use in mode tenon, at least
	equalUtilisation = 3.0  // points of CPU use between default-65 and tenon-65, at most
)

// claims judges what the modes of the experiment allow to judge. The order is
// that of importance; the first claim about tenon's P99 and the one about
// goodput were named before the measurement as the primary ones.
func (ev evidence) claims(resolution stat.Resolution) []Claim {
	var out []Claim
	for _, mode := range []Mode{Tenon, Tenon65} {
		if ev.asked(mode) {
			out = append(out, ev.tailClaim(mode, resolution))
		}
	}
	if ev.asked(Tenon) {
		out = append(out, ev.goodputClaim(), ev.cpuClaim(), ev.delayClaim())
		if ev.asked(Burstable) {
			out = append(out, ev.burstableClaim())
		}
	}
	pair := func(plain, tenon Mode, note string) {
		out = append(out,
			ev.comparison(plain, tenon, "P99", percentiles["p99"], ev.Margin, &resolution, note),
			ev.comparison(plain, tenon, "run-queue delay", runDelay, delayMargin, nil, note))
	}
	if ev.asked(Default65) && ev.asked(Tenon65) {
		equal := ev.utilisationClaim()
		note := ""
		if equal.Verdict != stat.Met {
			note = "The two modes were not shown to use equally much CPU, so this is no comparison at equal utilisation. "
		}
		out = append(out, equal)
		pair(Default65, Tenon65, note)
	}
	if ev.asked(Default) && ev.asked(Tenon) {
		pair(Default, Tenon, "")
	}
	return ev.explainTies(out)
}

// asked reports whether the experiment has mode, be it without a valid run so far.
func (ev evidence) asked(mode Mode) bool {
	return slices.Contains(ev.Modes, mode) || ev.used[mode] != nil
}

// lacking names the modes that a claim needs and the experiment does not have.
func (ev evidence) lacking(modes ...Mode) []Mode {
	return slices.DeleteFunc(slices.Clone(modes), ev.asked)
}

// refuse is the verdict for want of a mode: more blocks would not help.
func (c Claim) refuse(lacking []Mode) Claim {
	c.Verdict, c.Final = stat.Refused, true
	c.Explanation = fmt.Sprintf("Needs mode %s, which this experiment did not run. %s", modeList(lacking), c.Explanation)
	return c
}

func (c Claim) with(d stat.Decision) Claim {
	c.Verdict, c.Final = d.Verdict, d.Final
	return c
}

func (ev evidence) tailClaim(mode Mode, resolution stat.Resolution) Claim {
	p99 := percentiles["p99"]
	cold, warm := ev.ratio(mode, Exclusive, p99), ev.ratio(mode, ExclusiveWarm, p99)
	c := Claim{
		Name:      string(mode) + "-p99",
		Statement: fmt.Sprintf("%s raises P99 by at most %s, against the harder of %s and %s", mode, limit(ev.Margin), Exclusive, ExclusiveWarm),
		Numbers: map[string]Interval{
			"to_exclusive": intervalOf(cold), "to_exclusive_warm": intervalOf(warm), "aa_control": intervalOf(resolution.Control),
		},
	}
	measured := bounded("P99 to "+string(Exclusive), cold) + " " + bounded("P99 to "+string(ExclusiveWarm), warm)
	c.Explanation = measured
	if lacking := ev.lacking(Exclusive, ExclusiveWarm, ExclusiveAA); len(lacking) > 0 {
		return c.refuse(lacking)
	}
	c = c.with(worse(stat.NonInferior(cold, resolution, ev.Margin), stat.NonInferior(warm, resolution, ev.Margin)))
	switch {
	case c.Verdict == stat.Refused:
		c.Explanation = ev.refusal(resolution) + " " + measured
	case cold.Upper > warm.Upper:
		c.Explanation += fmt.Sprintf(" The harder baseline is %s.", Exclusive)
	default:
		c.Explanation += fmt.Sprintf(" The harder baseline is %s.", ExclusiveWarm)
	}
	if d := stat.NonInferior(cold, resolution, ev.Margin); d.Verdict == stat.Met && c.Verdict != stat.Met {
		c.Explanation += fmt.Sprintf(" Against %s the claim is met; %s itself is to %s: %s, because the CPU of the latter never idles.",
			Exclusive, Exclusive, ExclusiveWarm, ratio(intervalOf(ev.ratio(Exclusive, ExclusiveWarm, p99))))
	}
	if cold.High < 1 {
		c.Explanation += fmt.Sprintf(" That %s is faster than %s is no magic: a CPU that never idles need not be woken up; %s shows how much of the gain is only that.", mode, Exclusive, ExclusiveWarm)
	}
	return c
}

// bounded prints a ratio with the bound that decides.
func bounded(what string, e stat.Estimate) string {
	text := what + ": " + ratio(intervalOf(e))
	if e.Blocks > 1 {
		text += ", one-sided 95 % bound " + change(Number(e.Upper))
	}
	return text + "."
}

// refusal says why nothing as fine as the margin may be claimed here.
func (ev evidence) refusal(r stat.Resolution) string {
	margin := limit(ev.Margin)
	switch {
	case r.Control.Blocks < 2:
		return fmt.Sprintf("The A/A control (%s to %s) has %s: without an interval nothing can be claimed.", ExclusiveAA, Exclusive, plural(r.Control.Blocks, "block", "blocks"))
	case r.HalfWidth > ev.Margin-1:
		need := math.Ceil(float64(r.Control.Blocks) * math.Pow(r.HalfWidth/(ev.Margin-1), 2))
		text := fmt.Sprintf("This machine does not resolve the margin of %s: P99 of two equal modes (%s to %s, %d blocks) is known to ± %.1f %% only.",
			margin, ExclusiveAA, Exclusive, r.Control.Blocks, 100*r.HalfWidth)
		if r.Control.Blocks >= 4 && need < 1000 {
			text += fmt.Sprintf(" Some %.0f blocks would, at this noise.", need)
		}
		return text
	}
	return fmt.Sprintf("Two equal modes differ (%s to %s: %s), by more than a third of the margin of %s: the harness itself is biased here.",
		ExclusiveAA, Exclusive, ratio(intervalOf(r.Control)), margin)
}

// worse joins the decisions against two baselines: both must be met.
func worse(a, b stat.Decision) stat.Decision {
	for _, v := range []stat.Verdict{stat.NotMet, stat.Refused, stat.Undecided} {
		switch {
		case a.Verdict == v && b.Verdict == v:
			return stat.Decision{Verdict: v, Final: a.Final || b.Final}
		case a.Verdict == v:
			return a
		case b.Verdict == v:
			return b
		}
	}
	return stat.Decision{Verdict: stat.Met, Final: a.Final && b.Final}
}

func (ev evidence) delayClaim() Claim {
	e := ev.ratio(Tenon, ExclusiveWarm, runDelay)
	i := intervalOf(e)
	c := Claim{
		Name:        "tenon-runqueue-delay",
		Statement:   fmt.Sprintf("%s raises the service's run-queue delay by at most %s against %s", Tenon, limit(delayMargin), ExclusiveWarm),
		Numbers:     map[string]Interval{"to_exclusive_warm": i, "to_exclusive": intervalOf(ev.ratio(Tenon, Exclusive, runDelay))},
		Explanation: bounded(fmt.Sprintf("Mean wait per timeslice of all service threads, %s to %s", Tenon, ExclusiveWarm), e),
	}
	if lacking := ev.lacking(ExclusiveWarm); len(lacking) > 0 {
		return c.refuse(lacking)
	}
	return c.with(stat.AtMost(e, delayMargin))
}

func (ev evidence) goodputClaim() Claim {
	frames := ev.sample(Tenon, func(r Run) float64 { return r.FramesPerS })
	e := stat.Ratio(frames, ev.idleCapacity(Exclusive))
	i := intervalOf(e)
	c := Claim{
		Name:        "tenon-goodput",
		Statement:   fmt.Sprintf("In %s the batch work gets at least %.0f %% of what the idle CPU can give", Tenon, 100*goodputShare),
		Numbers:     map[string]Interval{"share_of_idle_capacity": i},
		Explanation: fmt.Sprintf("Frames per second as a share of idle CPU in %s × frame rate per CPU alone: %s.", Exclusive, quantity(i, 100, " %")),
	}
	if len(ev.lacking(ExclusiveWarm)) == 0 {
		// What the service is charged for the same requests can depend on
		// whether the CPU sleeps between them; that is not the batch work's.
		warm := intervalOf(stat.Ratio(frames, ev.idleCapacity(ExclusiveWarm)))
		service := func(r Run) float64 { return positive(r.LSCPU) }
		charged := intervalOf(ev.ratio(ExclusiveWarm, Exclusive, service))
		c.Numbers["share_of_warm_idle_capacity"], c.Numbers["warm_service_cpu_ratio"] = warm, charged
		c.Explanation += fmt.Sprintf(" Of what %s leaves idle: %s.", ExclusiveWarm, quantity(warm, 100, " %"))
		if charged.Low > 1 {
			c.Explanation += fmt.Sprintf(" On a CPU that never sleeps the service itself is charged %s times the CPU for the same requests.", number(charged.Estimate, 2))
		}
	}
	if lacking := ev.lacking(Exclusive); len(lacking) > 0 {
		return c.refuse(lacking)
	}
	if !ev.asked(Solo) && !(ev.SoloFramesPerSecond > 0 && ev.SoloCPU > 0) {
		c.Verdict, c.Final = stat.Refused, true
		c.Explanation = "The rate of the batch work alone was not measured."
		return c
	}
	return c.with(stat.AtLeast(e, goodputShare))
}

func (ev evidence) cpuClaim() Claim {
	e := stat.Mean(ev.sample(Tenon, cpuPercent))
	i := intervalOf(e)
	i.High, i.Upper = min(i.High, 100), min(i.Upper, 100)
	return Claim{
		Name:        "tenon-cpu",
		Statement:   fmt.Sprintf("In %s the tested CPUs are at least %.0f %% busy", Tenon, fullCPUPercent),
		Numbers:     map[string]Interval{"cpu_percent": i},
		Explanation: fmt.Sprintf("Busy share of the tested CPUs, mean over blocks: %s.", quantity(i, 1, " %")),
	}.with(stat.AtLeast(e, fullCPUPercent))
}

func (ev evidence) burstableClaim() Claim {
	e := ev.ratio(Burstable, Tenon, runDelay)
	i := intervalOf(e)
	return Claim{
		Name:      "burstable-runqueue-delay",
		Statement: fmt.Sprintf("Under %s the service waits more than %.0f times as long for a CPU as under %s", Burstable, burstableFactor, Tenon),
		Numbers:   map[string]Interval{"burstable_to_tenon": i},
		Explanation: fmt.Sprintf("Run-queue delay, %s to %s: %s, one-sided 95 %% lower bound %s.",
			Burstable, Tenon, quantity(i, 1, " times as long"), number(i.Lower, 1)),
	}.with(stat.AtLeast(e, burstableFactor))
}

func (ev evidence) utilisationClaim() Claim {
	e := stat.Difference(ev.sample(Default65, cpuPercent), ev.sample(Tenon65, cpuPercent))
	i := intervalOf(e)
	return Claim{
		Name:        "equal-utilisation",
		Statement:   fmt.Sprintf("%s and %s use equally much CPU, within %.0f points", Default65, Tenon65, equalUtilisation),
		Numbers:     map[string]Interval{"points": i},
		Explanation: fmt.Sprintf("CPU of the tested CPUs, %s − %s: %s.", Default65, Tenon65, quantity(i, 1, " points")),
	}.with(worse(stat.AtMost(e, equalUtilisation), stat.AtLeast(e, -equalUtilisation)))
}
