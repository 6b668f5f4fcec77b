package report

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/lab/stat"
)

// comparison sets what Kubernetes does beside what tenon does. Neither outcome
// is "the right one": a tie is reported as a tie, with its reason. Where the
// metric has an A/A control, equality finer than the control is not claimed.
func (ev evidence) comparison(plain, tenon Mode, what string, m metric, margin float64, control *stat.Resolution, note string) Claim {
	e := ev.ratio(plain, tenon, m)
	i := intervalOf(e)
	c := Claim{
		Name:      fmt.Sprintf("%s-or-%s-%s", plain, tenon, strings.ReplaceAll(strings.ToLower(what), "run-queue ", "runqueue-")),
		Statement: fmt.Sprintf("%s of %s beside %s (a tie: within %s)", upperFirst(what), plain, tenon, limit(margin)),
		Numbers:   map[string]Interval{"ratio": i},
	}.with(stat.Equivalent(e, margin))
	why := "No proof of a difference, and none of equality either: the interval is too wide for both."
	if control != nil && !control.Fine && c.Verdict == stat.Tie {
		c.Verdict, c.Final = stat.Undecided, len(ev.lacking(Exclusive, ExclusiveAA)) > 0
		why = "Equal within the margin, it seems; but without an A/A control that resolves the margin that is not claimed."
	}
	measured := fmt.Sprintf("%s of %s to %s: %s.", upperFirst(what), plain, tenon, ratio(i))
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

// explainTies appends the reason to the first tie and a reference to the others.
func (ev evidence) explainTies(claims []Claim) []Claim {
	why := " " + ev.whyTie()
	for i, c := range claims {
		if c.Verdict == stat.Tie {
			claims[i].Explanation += why
			why = " A tie, for the reason given above."
		}
	}
	return claims
}

// whyTie explains a tie between kubelet's weights and tenon.
func (ev evidence) whyTie() string {
	text := "A tie. The likely reason: kubelet gives BestEffort pods the least weight there is (cpu.shares 2, cpu.weight 1), and a service thread that wakes up preempts them about as well as it preempts cpu.idle work; seen so on a stock 6.18 kernel."
	if ev.TestedCPUs.Len() == 1 {
		text += " With one tested CPU there is, moreover, no wrong CPU to wake up on, no SMT sibling and no balancing."
	}
	return text + fmt.Sprintf(" This kernel is %s. Look for differences with several CPUs for the service, SMT, contended caches or memory, older kernels, and batch work that has CPU requests (%s).", ev.kernel(), Burstable)
}

func (ev evidence) kernel() string {
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
