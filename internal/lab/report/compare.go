package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/stat"
)

// DelayMargin is the ratio of run-queue delays that counts as a difference.
const DelayMargin = 1.10

// Comparison compares Kubernetes without Tenon with Tenon. No outcome is
// preferred: a tie is reported as a tie, with its reason. If the metric has an
// A/A control, Comparison does not claim equality finer than the control.
func (ev Evidence) Comparison(plain, tenon Mode, what string, m Metric, margin float64, control *stat.Resolution, note string) Claim {
	e := ev.Ratio(plain, tenon, m)
	i := IntervalOf(e)
	c := Claim{
		Name:      fmt.Sprintf("%s-or-%s-%s", plain, tenon, strings.ReplaceAll(strings.ToLower(what), "run-queue ", "runqueue-")),
		Statement: fmt.Sprintf("%s of %s beside %s (a tie: within %s)", upperFirst(what), plain, tenon, Limit(margin)),
		Numbers:   map[string]Interval{"ratio": i},
	}.With(stat.Equivalent(e, margin))
	why := "No proof of a difference, and none of equality either: the interval is too wide for both."
	if control != nil && !control.Fine && c.Verdict == stat.Tie {
		c.Verdict, c.Final = stat.Undecided, len(ev.Lacking(Exclusive, ExclusiveAA)) > 0
		why = "Equal within the margin, it seems; but without an A/A control that resolves the margin that is not claimed."
	}
	measured := fmt.Sprintf("%s of %s to %s: %s.", upperFirst(what), plain, tenon, FormatRatio(i))
	switch c.Verdict {
	case stat.Tie:
		c.Explanation = measured
		if e.Low > 1 || e.High < 1 {
			c.Explanation += " There is a difference, but it is smaller than the margin."
		}
	case stat.Differs:
		lower, higher, factor := tenon, plain, e.Value
		if e.Value < 1 {
			lower, higher, factor = plain, tenon, 1/e.Value
		}
		c.Explanation = fmt.Sprintf("%s The lower %s is that of %s; that of %s is %s.", measured, what, lower, higher, times(factor))
	default:
		c.Explanation = measured + " " + why
	}
	c.Explanation = note + c.Explanation
	return c
}

// ExplainTies appends the reason to the first tie and a reference to the others.
func (ev Evidence) ExplainTies(claims []Claim) []Claim {
	why := " " + ev.whyTie()
	for i, c := range claims {
		if c.Verdict == stat.Tie {
			claims[i].Explanation += why
			why = " A tie, for the reason given above."
		}
	}
	return claims
}

// whyTie explains a tie between the kubelet's weights and tenon.
func (ev Evidence) whyTie() string {
	text := "A tie. The likely reason: kubelet gives BestEffort pods the least weight there is (cpu.shares 2, cpu.weight 1), and a service thread that wakes up preempts them about as well as it preempts cpu.idle work; seen so on a stock 6.18 kernel."
	if ev.TestedCPUs.Len() == 1 {
		text += " With one tested CPU there is, moreover, no wrong CPU to wake up on, no SMT sibling and no balancing."
	}
	return text + fmt.Sprintf(" This kernel is %s. Look for differences with several CPUs for the service, SMT, contended caches or memory, older kernels, and batch work that has CPU requests (%s).", ev.kernel(), Burstable)
}

func (ev Evidence) kernel() string {
	if ev.Machine.Kernel == "" {
		return "unknown"
	}
	return ev.Machine.Kernel
}

func times(factor float64) string {
	if factor >= 2 {
		return fmt.Sprintf("%.1f times as high", factor)
	}
	return fmt.Sprintf("%.1f %% higher", 100*(factor-1))
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func modeList(modes []Mode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}

// AsAlone judges whether the service's P99 in a mode equals that of the service
// alone, within the margin.
func (ev Evidence) AsAlone(mode Mode, statement string, resolution stat.Resolution) Claim {
	alone := ev.Ratio(mode, Exclusive, Percentiles["p99"])
	c := Claim{
		Name:        fmt.Sprintf("%s-as-%s", mode, Exclusive),
		Statement:   statement,
		Numbers:     map[string]Interval{"to_exclusive": IntervalOf(alone)},
		Explanation: Bounded(fmt.Sprintf("P99, %s to %s", mode, Exclusive), alone),
	}
	if lacking := ev.Lacking(Exclusive, ExclusiveAA); len(lacking) > 0 {
		return c.Refuse(lacking)
	}
	c = c.With(stat.NonInferior(alone, resolution, ev.Margin))
	if c.Verdict == stat.Refused {
		c.Explanation = ev.Refusal(resolution) + " " + c.Explanation
	}
	return c
}

// Asked reports whether the experiment has mode, even without a valid run so
// far.
func (ev Evidence) Asked(mode Mode) bool {
	return slices.Contains(ev.Modes, mode) || ev.used[mode] != nil
}

// Lacking returns the modes that a claim needs and the experiment does not
// have.
func (ev Evidence) Lacking(modes ...Mode) []Mode {
	return slices.DeleteFunc(slices.Clone(modes), ev.Asked)
}

// Refuse returns the claim with a final verdict for missing modes: more blocks
// would not help.
func (c Claim) Refuse(lacking []Mode) Claim {
	c.Verdict, c.Final = stat.Refused, true
	c.Explanation = fmt.Sprintf("Needs mode %s, which this experiment did not run. %s", modeList(lacking), c.Explanation)
	return c
}

// With returns the claim with its verdict.
func (c Claim) With(d stat.Decision) Claim {
	c.Verdict, c.Final = d.Verdict, d.Final
	return c
}

// Bounded prints a ratio with the bound that decides.
func Bounded(what string, e stat.Estimate) string {
	text := what + ": " + FormatRatio(IntervalOf(e))
	if e.Blocks > 1 {
		text += ", one-sided 95 % bound " + change(Number(e.Upper))
	}
	return text + "."
}

// Refusal explains why a claim as fine as the margin is not possible here.
func (ev Evidence) Refusal(r stat.Resolution) string {
	margin := Limit(ev.Margin)
	switch {
	case r.Control.Blocks < 2:
		return fmt.Sprintf("The A/A control (%s to %s) has %s: without an interval nothing can be claimed.", ExclusiveAA, Exclusive, Plural(r.Control.Blocks, "block", "blocks"))
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
		ExclusiveAA, Exclusive, FormatRatio(IntervalOf(r.Control)), margin)
}
