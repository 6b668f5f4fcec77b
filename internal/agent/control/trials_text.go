// This file prints the results of trials of isolation mechanisms on this node.

package control

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"tenon.sh/tenon/internal/model/trial"
)

// trialEffect returns one line about the effect of a mechanism on the waits of a
// service. The function ago prints durations.
func trialEffect(e trial.Effect, at time.Time, ago func(time.Duration) string) string {
	change, verb := e.Without-e.With, "saves"
	if change < 0 {
		change, verb = -change, "costs"
	}
	use := "is in use"
	if !e.Kept {
		use, verb = "is not used", map[string]string{"saves": "would save", "costs": "would cost"}[verb]
	}
	return fmt.Sprintf("%s %s it %v of waiting for a CPU an hour: %v instead of %v (trial of %d pairs, %s ago: %s; it %s).\n", e.Mechanism, verb,
		hourly(change), hourly(e.With), hourly(e.Without), e.Pairs, ago(at.Sub(e.Ended)), e.Found, use)
}

// trialsPage returns the results of the trials as a table. The function ago prints durations.
func trialsPage(v trial.Status, at time.Time, ago func(time.Duration) string) string {
	var b strings.Builder
	head := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	kept := "the floor: the least weight and long slices"
	if v.Kept != "" {
		kept = string(v.Kept) + ", kept by a trial"
	}
	if !v.Since.IsZero() {
		kept += fmt.Sprintf(", since %s (%s)", v.Since.Format(time.DateTime), ago(at.Sub(v.Since)))
	}
	fmt.Fprintf(head, "beyond trials\t%s\ntrials\t%s\n", kept, cmp.Or(v.Why, "none yet"))
	if !v.Next.IsZero() {
		fmt.Fprintf(head, "next\tnot before %s\n", v.Next.Format(time.DateTime))
	}
	_ = head.Flush() // a write to memory cannot fail
	if len(v.Results) == 0 {
		return b.String()
	}
	b.WriteByte('\n')
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TRIED\tAGAINST\tFOUND\tPAIRS\tWAIT WITHOUT\tWAIT WITH\tRATIO\tENDED\tWHY")
	for _, r := range v.Results {
		ratio := "-"
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f (%.2f to %.2f)", r.Ratio, r.Low, r.High)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Candidate, cmp.Or(string(r.Against), "the floor"), r.Finding, r.Pairs,
			trialWait(r.Without), trialWait(r.With), ratio, r.Ended.Format(time.TimeOnly), r.Why)
		for _, s := range r.Services {
			fmt.Fprintf(table, "  %s\t\t\t%d\t%s\t%s\t\t\t%v an hour without, %v with\n", s.Name, s.Pairs, trialWait(s.Without), trialWait(s.With),
				hourly(s.HourWithout), hourly(s.HourWith))
		}
		if r.More > 0 {
			fmt.Fprintf(table, "  and %d more services\n", r.More)
		}
	}
	_ = table.Flush()
	return b.String()
}

// trialWait returns the mean length of a wait as text, or "-" for 0.
func trialWait(t time.Duration) string {
	if t == 0 {
		return "-"
	}
	return t.Round(10 * time.Nanosecond).String()
}

// hourly rounds a waiting time in an hour to the digits that a trial can tell.
func hourly(d time.Duration) time.Duration {
	if d.Abs() >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(100 * time.Microsecond)
}
