// This file prints the results of trials of isolation mechanisms on this node.

package control

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/trial"
	"tenon.sh/tenon/internal/table"
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
	table.WriteFacts(&b, []table.Column[trial.Status]{
		{Name: "beyond trials", Text: func(v trial.Status) string {
			kept := "the floor: the least weight and long slices"
			if v.Kept != "" {
				kept = string(v.Kept) + ", kept by a trial"
			}
			if !v.Since.IsZero() {
				kept += fmt.Sprintf(", since %s (%s)", v.Since.Format(time.DateTime), ago(at.Sub(v.Since)))
			}
			return kept
		}},
		{Name: "trials", Text: func(v trial.Status) string { return cmp.Or(v.Why, "none yet") }},
		{Name: "next", Text: func(v trial.Status) string {
			if v.Next.IsZero() {
				return ""
			}
			return "not before " + v.Next.Format(time.DateTime)
		}},
	}, v)
	if len(v.Results) == 0 {
		return b.String()
	}
	b.WriteByte('\n')
	var rows []trialRow
	for _, r := range v.Results {
		rows = append(rows, trialRow{result: r})
		for _, s := range r.Services {
			rows = append(rows, trialRow{service: &s})
		}
		if r.More > 0 {
			rows = append(rows, trialRow{more: r.More})
		}
	}
	table.Write(&b, "", trialColumns, rows)
	return b.String()
}

// A trialRow is a trial, one of its services, or the number of those that it does
// not list.
type trialRow struct {
	result  trial.Result
	service *trial.Service
	more    int
}

// trialColumn is a column that has a text for trials, and perhaps for services.
func trialColumn(name string, result func(trial.Result) string, service func(trial.Service) string) table.Column[trialRow] {
	return table.Column[trialRow]{Name: name, Text: func(r trialRow) string {
		switch {
		case r.service == nil && r.more == 0:
			return result(r.result)
		case r.service != nil && service != nil:
			return service(*r.service)
		}
		return ""
	}}
}

var trialColumns = []table.Column[trialRow]{
	{Name: "TRIED", Text: func(r trialRow) string {
		switch {
		case r.service != nil:
			return "  " + r.service.Name
		case r.more > 0:
			return fmt.Sprintf("  and %d more services", r.more)
		}
		return string(r.result.Candidate)
	}},
	trialColumn("AGAINST", func(r trial.Result) string { return cmp.Or(string(r.Against), "the floor") }, nil),
	trialColumn("FOUND", func(r trial.Result) string { return string(r.Finding) }, nil),
	trialColumn("PAIRS", func(r trial.Result) string { return fmt.Sprint(r.Pairs) }, func(s trial.Service) string { return fmt.Sprint(s.Pairs) }),
	trialColumn("WAIT WITHOUT", func(r trial.Result) string { return trialWait(r.Without) }, func(s trial.Service) string { return trialWait(s.Without) }),
	trialColumn("WAIT WITH", func(r trial.Result) string { return trialWait(r.With) }, func(s trial.Service) string { return trialWait(s.With) }),
	trialColumn("RATIO", func(r trial.Result) string {
		if r.Ratio <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f (%.2f to %.2f)", r.Ratio, r.Low, r.High)
	}, nil),
	trialColumn("ENDED", func(r trial.Result) string { return r.Ended.Format(time.TimeOnly) }, nil),
	trialColumn("WHY", func(r trial.Result) string { return r.Why }, func(s trial.Service) string {
		return fmt.Sprintf("%v an hour without, %v with", hourly(s.HourWithout), hourly(s.HourWith))
	}),
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
