// Package claim judges the claims of an experiment about its modes. A claim
// says that the service is as fast as alone, or that a mode with Tenon differs
// from one without it. A refused claim has a reason.
package claim

import (
	"fmt"
	"math"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// A Pair is a comparison of two modes in several measures. Plain is the mode
// that people use without Tenon.
type Pair struct {
	Plain, Tenon report.Mode
	Measures     []report.Measure
	Note         string // begins the explanations
}

// Comparisons compares the two modes of each pair. It judges all pairs
// together, so that more pairs do not make a false difference more likely
// (stat.Compare). A tie is a result like any other. The A/A control is a
// comparison of two equal modes. If the control of a measure is too noisy for
// the margin, Comparisons claims no tie in this measure.
func Comparisons(ev report.Evidence, pairs []Pair) []report.Claim {
	var claims []report.Claim
	var tests []stat.Comparison
	var explain []func(stat.Verdict) string
	var sides []Pair
	for _, p := range pairs {
		for _, m := range p.Measures {
			margin, control := m.MarginOf(ev.Experiment), ev.Resolution(m)
			logs, _ := stat.Logs(ev.Sample(p.Plain, m.Of), ev.Sample(p.Tenon, m.Of))
			tests = append(tests, stat.Comparison{Logs: logs, Margin: margin, NoTie: !control.Fine})
			e := ev.Ratio(p.Plain, p.Tenon, m.Of)
			claims = append(claims, report.Claim{
				Name:      fmt.Sprintf("%s-or-%s-%s", p.Plain, p.Tenon, m.Key),
				Statement: fmt.Sprintf("%s of %s beside %s (a tie: within %s)", upperFirst(m.Name), p.Plain, p.Tenon, report.Limit(margin)),
				Numbers:   map[string]report.Interval{"ratio": e, "aa_control": control.Control},
			})
			explain = append(explain, func(v stat.Verdict) string { return p.Note + p.explain(m, e, control, v) })
			sides = append(sides, p)
		}
	}
	for i, v := range stat.Compare(tests, ev.Rule) {
		claims[i].Verdict = v
		claims[i].Explanation = explain[i](v)
		claims[i].About, claims[i].Favours = sides[i].favoured(v, claims[i].Numbers["ratio"])
	}
	return claims
}

// favoured returns the modes whose runs decide a comparison with a ratio, and those
// for which the verdict speaks: the better one, or both of a tie, which the A/A
// control decides as well.
func (p Pair) favoured(v stat.Verdict, ratio report.Interval) (about, favours []report.Mode) {
	both := []report.Mode{p.Plain, p.Tenon}
	switch {
	case v == stat.Tie:
		return append(both, report.Exclusive, report.ExclusiveAA), both
	case v == stat.Differs && ratio.Value < 1:
		return both, both[:1]
	case v == stat.Differs:
		return both, both[1:]
	}
	return both, nil
}

// TooFew returns the reason why an estimate has too few blocks for a verdict.
// It returns "" if the estimate has enough blocks, or none at all. A skewed
// sample needs more blocks than a symmetric one.
func TooFew(e stat.Estimate) string {
	if e.Enough || e.Blocks == 0 {
		return ""
	}
	return fmt.Sprintf(" %s: too few for a verdict.", textlayout.Plural(e.Blocks, "block", "blocks"))
}

func (p Pair) explain(m report.Measure, e stat.Estimate, control stat.Resolution, v stat.Verdict) string {
	i := e
	text := fmt.Sprintf("%s of %s to %s: %s%s.", upperFirst(m.Name), p.Plain, p.Tenon, report.FormatRatio(i), medianText(i))
	switch {
	case v == stat.Tie && (e.Low > 1 || e.High < 1):
		text += " There is a difference, but it is smaller than the margin."
	case v == stat.Tie:
	case v == stat.Differs:
		lower, higher, factor := p.Tenon, p.Plain, e.Value
		if e.Value < 1 {
			lower, higher, factor = p.Plain, p.Tenon, 1/e.Value
		}
		text += fmt.Sprintf(" The lower %s is that of %s; that of %s is %s.", m.Name, lower, higher, times(factor))
	case TooFew(e) != "":
		text += TooFew(e)
	case !control.Fine:
		text += " No proof of a difference; and the A/A control does not resolve the margin, so that no tie is claimed."
	default:
		text += " No proof of a difference, and none of equality either: the interval is too wide for both."
	}
	return text
}

// InOrder makes the claims of a mode about several measures. It judges them in
// the given order. A claim counts as met only if all claims before it are met. So
// several claims are no more likely to contain a false one than a single claim.
func InOrder(measures []report.Measure, claim func(report.Measure) report.Claim) []report.Claim {
	var claims []report.Claim
	first := ""
	for _, m := range measures {
		c := claim(m)
		if first != "" && c.Verdict == stat.Met {
			c.Verdict = stat.Undecided
			c.Explanation += fmt.Sprintf(" On its own it would be met, but the claim about %s comes first and is not met.", first)
		}
		if first == "" && c.Verdict != stat.Met {
			first = m.Name
		}
		claims = append(claims, c)
	}
	return claims
}

// ExplainTies appends the reason of a tie to the first tie. To the other ties
// it appends a reference to the first one.
func ExplainTies(ev report.Evidence, claims []report.Claim) []report.Claim {
	why := " " + explainTie(ev)
	for i, c := range claims {
		if c.Verdict == stat.Tie {
			claims[i].Explanation += why
			why = " A tie, for the reason given above."
		}
	}
	return claims
}

// explainTie explains a tie between the kubelet's weights and tenon.
func explainTie(ev report.Evidence) string {
	text := "A tie. The likely reason: kubelet gives BestEffort pods the least weight there is (cpu.shares 2, cpu.weight 1), and a service thread that wakes up preempts them about as well as it preempts cpu.idle work; seen so on a stock 6.18 kernel."
	if ev.TestedCPUs.Len() == 1 {
		text += " With one tested CPU there is, moreover, no wrong CPU to wake up on, no SMT sibling and no balancing."
	}
	return text + fmt.Sprintf(" This kernel is %s. Look for differences with several CPUs for the service, SMT, contended caches or memory, older kernels, and batch work that has CPU requests (%s).", kernel(ev), report.Burstable)
}

func kernel(ev report.Evidence) string {
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

// AsAlone compares a measure of the service, such as its P99, with that of the
// service alone. It claims that the mode raises the measure by at most the margin.
func AsAlone(ev report.Evidence, mode report.Mode, m report.Measure, statement string) report.Claim {
	alone, resolution := ev.Ratio(mode, report.Exclusive, m.Of), ev.Resolution(m)
	c := report.Claim{
		Name:        fmt.Sprintf("%s-as-%s-%s", mode, report.Exclusive, m.Key),
		Statement:   statement,
		Numbers:     map[string]report.Interval{"to_exclusive": alone, "aa_control": resolution.Control},
		Explanation: Bounded(fmt.Sprintf("%s, %s to %s", upperFirst(m.Name), mode, report.Exclusive), alone),
		About:       []report.Mode{mode, report.Exclusive, report.ExclusiveAA}, Favours: []report.Mode{mode},
	}
	if lacking := ev.Lacking(report.Exclusive, report.ExclusiveAA); len(lacking) > 0 {
		return c.Refuse(lacking)
	}
	c.Verdict = stat.NonInferior(alone, resolution, m.MarginOf(ev.Experiment))
	if c.Verdict == stat.Refused {
		c.Explanation = Refusal(ev, m) + " " + c.Explanation
	}
	return c
}

// Bounded prints a ratio, its interval, and the upper bound that decides the claim.
func Bounded(what string, e stat.Estimate) string {
	i := e
	text := what + ": " + report.FormatRatio(i) + medianText(i)
	switch {
	case e.Blocks > 0 && !e.Enough:
		text += "; too few for a verdict"
	case e.Enough:
		text += ", upper bound of the claim " + report.Change(report.Number(e.ClaimUpper))
	}
	return text + "."
}

// medianText prints the median of the blocks with its exact interval.
func medianText(i report.Interval) string {
	if i.Blocks < 2 || i.IsVague() {
		return ""
	}
	text := ", median of the blocks " + report.Change(i.Median)
	if report.Number(i.MedianHigh).Known() && i.MedianLow > 0 {
		text += " (" + report.Span(report.Interval{Low: i.MedianLow, High: i.MedianHigh}) + ")"
	}
	return text
}

// Refusal explains why this experiment cannot claim differences as small as the
// margin of a measure.
func Refusal(ev report.Evidence, m report.Measure) string {
	r, limit := ev.Resolution(m), m.MarginOf(ev.Experiment)
	margin := report.Limit(limit)
	switch {
	case r.Control.Blocks < 2:
		return fmt.Sprintf("The A/A control (%s to %s) has %s: without an interval nothing can be claimed.", report.ExclusiveAA, report.Exclusive, textlayout.Plural(r.Control.Blocks, "block", "blocks"))
	case r.Control.IsVague():
		return fmt.Sprintf("%s of the A/A control (%s to %s) cannot tell how alike two equal modes are.", textlayout.Plural(r.Control.Blocks, "block", "blocks"), report.ExclusiveAA, report.Exclusive)
	case r.HalfWidth > limit-1:
		need := math.Ceil(float64(r.Control.Blocks) * math.Pow(r.HalfWidth/(limit-1), 2))
		text := fmt.Sprintf("This machine does not resolve the margin of %s: %s of two equal modes (%s to %s, %d blocks) is known to ± %.1f %% only.",
			margin, m.Name, report.ExclusiveAA, report.Exclusive, r.Control.Blocks, 100*r.HalfWidth)
		if r.Control.Blocks >= 4 && need < 1000 {
			text += fmt.Sprintf(" Some %.0f blocks would, at this noise.", need)
		}
		return text
	}
	return fmt.Sprintf("Two equal modes differ (%s to %s: %s), by more than a third of the margin of %s: the harness itself is biased here.",
		report.ExclusiveAA, report.Exclusive, report.FormatRatio(r.Control), margin)
}
