package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// shownMechanism returns the name of a mechanism, or "none".
func shownMechanism(r node.Mechanism) string { return cmp.Or(string(r), "none") }

// describe returns the isolation as one line for tenon status.
func (i Isolation) describe(at time.Time) string {
	s := shownMechanism(i.Mechanism)
	if !i.Since.IsZero() {
		s += " for " + PrintDuration(at.Sub(i.Since))
	}
	switch {
	case i.ByHand:
		s += ", pinned by hand"
	case i.Pinned != "":
		s += ", pinned by the configuration"
	}
	if e, known := i.Expelled.Value(); known {
		s += fmt.Sprintf("; %v kept idle for LS, %s held after it", e, Shown(i.Held, unit.MilliCPU.String))
	}
	if i.Strays > 0 {
		s += fmt.Sprintf("; %d strays", i.Strays)
	}
	if i.Mechanism != "" && i.Trials != "" {
		s += "; trials: " + i.Trials
	}
	if i.Failures > 0 {
		s += fmt.Sprintf("; %d failures in an hour", i.Failures)
	}
	return s
}

// Outcome returns one line with the mechanism in use and the reason.
func (q QOS) Outcome() string {
	selection := printable.Value(q.Selection)
	by := "the configuration leaves the choice to tenond"
	switch {
	case selection.ByHand:
		by = "pinned by hand, until tenon isolation auto or the next boot"
	case selection.Pinned != "":
		by = "pinned by the configuration"
	}
	return Printable(fmt.Sprintf("%s is in use: %s (%s)", shownMechanism(selection.Mechanism), selection.Why, by))
}

// String returns the text of tenon isolation show.
func (q QOS) String() string {
	var b strings.Builder
	printable.Value(q).describe(&b)
	return Printable(b.String())
}

func (q QOS) describe(b *strings.Builder) {
	if q.At.IsZero() {
		b.WriteString("tenond has started and has made no tick yet.\n")
		return
	}
	describeSelection(b, q.Selection, q.At)
	b.WriteByte('\n')
	if q.Selection.Mechanism != "" && q.Trials.Why != "" {
		b.WriteString(trialsPage(q.Trials, q.At, PrintDuration))
		b.WriteByte('\n')
	}
	table.WriteFacts(b, slices.Concat(meansFacts, qosFacts), q)
}

// qosFacts are the failures and the knobs of the mechanisms.
var qosFacts = []table.Column[QOS]{
	{Name: "failures", Text: func(q QOS) string {
		if len(q.Selection.Failures) > 0 {
			return ""
		}
		return "none in the last hour"
	}},
	{Name: "failure", Text: func(q QOS) string {
		return table.Lines(q.Selection.Failures, func(f node.Failure) string {
			return fmt.Sprintf("%s %s: %s", f.At.Format(time.TimeOnly), f.Mechanism, f.Why)
		})
	}},
	{Name: "knob", Text: func(q QOS) string {
		return table.Lines(q.Knobs, func(k Knob) string { return fmt.Sprintf("%v: %s", k.Knob, k.nowText()) })
	}},
	{Name: "failing", Text: func(q QOS) string {
		return table.Lines(q.Failing, func(w record.Write) string { return fmt.Sprintf("%v %q -> %q: %s", w.Knob, w.Old, w.New, w.Error) })
	}},
}

// nowText prints the present value of a knob, and the wanted one if it differs.
func (k Knob) nowText() string {
	now := "?"
	if k.Now != nil {
		now = *k.Now
	}
	switch {
	case k.Intent == plan.Abstain:
		return now + ", left alone: " + k.Reason
	case k.Intent == plan.Pause:
		return now + ", held back from " + k.Want + ": " + k.Reason
	case now != k.Want:
		return now + ", wanted " + k.Want
	}
	return now
}

// describeSelection writes the mechanism in use, the reason, and the state of all mechanisms.
func describeSelection(b *strings.Builder, l node.Selection, at time.Time) {
	table.WriteFacts(b, []table.Column[node.Selection]{
		{Name: "mechanism", Text: func(l node.Selection) string {
			if l.Since.IsZero() {
				return shownMechanism(l.Mechanism)
			}
			return fmt.Sprintf("%s, since %s (%s)", shownMechanism(l.Mechanism), l.Since.Format(time.DateTime), PrintDuration(at.Sub(l.Since)))
		}},
		{Name: "because", Text: func(l node.Selection) string { return l.Why }},
		{Name: "pinned", Text: func(l node.Selection) string {
			switch {
			case l.ByHand:
				return string(l.Pinned) + ", by hand: tenon isolation auto gives the choice back to the configuration"
			case l.Pinned != "":
				return string(l.Pinned) + ", by the configuration"
			}
			return ""
		}},
	}, l)
	b.WriteByte('\n')
	table.Write(b, "", []table.Column[node.MechanismStatus]{
		{Name: "MECHANISM", Text: func(r node.MechanismStatus) string { return string(r.Mechanism) }},
		{Name: "NODE CAN", Text: func(r node.MechanismStatus) string { return string(r.Can) }},
		{Name: "NOW", Text: func(r node.MechanismStatus) string { return printState(l, r, at) }},
		{Name: "WHY", Text: func(r node.MechanismStatus) string { return r.Why }},
	}, l.Mechanisms)
}

// printState returns the state of one mechanism as a part of a line.
func printState(l node.Selection, r node.MechanismStatus, at time.Time) string {
	var s []string
	if r.Mechanism == l.Mechanism {
		s = append(s, "in use")
	}
	switch {
	case r.Failures == 1:
		s = append(s, "failed once")
	case r.Failures > 1:
		s = append(s, fmt.Sprintf("failed %d times", r.Failures))
	}
	switch {
	case !r.Retry.After(at): // the mechanism may be tried again
	case r.Down:
		s = append(s, fmt.Sprintf("down until %s", r.Retry.Format(time.TimeOnly)))
	default:
		s = append(s, fmt.Sprintf("tried again in %s", PrintDuration(r.Retry.Sub(at))))
	}
	return cmp.Or(strings.Join(s, ", "), "-")
}

// meansFacts are the state of the mechanisms. If the BE scheduler has not run, its
// facts are left out.
var meansFacts = []table.Column[QOS]{
	ofScheduler("scheduler", func(s *node.SchedulerStatus, q QOS) string {
		now := "not Tenon's now; what it did last"
		if s.Running {
			now = "loaded " + s.Since.Format(time.DateTime)
		}
		return fmt.Sprintf("%s, %s; loads %d; interface of Linux %s", s.State, now, q.Means.Loads, s.Variant)
	}),
	{Name: "exits", Text: func(q QOS) string {
		if len(q.Means.Exits) == 0 {
			return ""
		}
		var all []string
		for _, k := range node.ExitKinds {
			if n := q.Means.Exits[k]; n > 0 {
				all = append(all, fmt.Sprintf("%d %s", n, k))
			}
		}
		return fmt.Sprintf("%s; the last at %s: %s", strings.Join(all, ", "), q.Means.LastExit.At.Format(time.TimeOnly), printExit(q.Means.LastExit))
	}},
	{Name: "slots", Text: func(q QOS) string {
		if q.Selection.Slotless == 0 {
			return ""
		}
		return fmt.Sprintf("%d BE workloads share one: there are %d, and they have no weight and no quota of their own", q.Selection.Slotless, node.SchedulerSlots-1)
	}},
	{Name: "untold", Text: func(q QOS) string {
		if q.Means.Refused == "" {
			return ""
		}
		return "it has not accepted all of its orders: " + q.Means.Refused
	}},
	ofScheduler("run", func(s *node.SchedulerStatus, _ QOS) string {
		var run []string
		for _, c := range node.SchedulerClasses {
			run = append(run, fmt.Sprintf("%s %v", c, Brief(s.Run[c])))
		}
		return fmt.Sprintf("%s; idle %v; BE outside of it %v", strings.Join(run, ", "), Brief(s.Idle), Brief(s.Strayed))
	}),
	ofScheduler("beside LS", func(s *node.SchedulerStatus, _ QOS) string {
		delay := node.RunQueueDelay{Counts: s.ExpelDelay}
		bound := func(q float64) string { return Shown(delay.Quantile(q), rounded) }
		return fmt.Sprintf("%d expelled (P50 < %s, P90 < %s), %d refused; %v kept idle for LS, %v held after it",
			s.Expels, bound(0.5), bound(0.9), s.Refusals, Brief(s.ExpelIdle), Brief(s.HoldIdle))
	}),
	ofScheduler("", func(s *node.SchedulerStatus, _ QOS) string {
		return fmt.Sprintf("%d started there and were stopped (%d races, %d resumed)", s.Violations, s.Races, s.Resumed)
	}),
	ofScheduler("queues", func(s *node.SchedulerStatus, _ QOS) string { return queuesText(s) }),
	ofScheduler("limits", func(s *node.SchedulerStatus, _ QOS) string {
		return fmt.Sprintf("%d throttled by their quota, %d by the cap of all BE, %d kept off cores left to LS", s.Throttled, s.Capped, s.Headroom)
	}),
	ofScheduler("kicks", func(s *node.SchedulerStatus, _ QOS) string {
		return fmt.Sprintf("%d to expel, %d to wake (%d by timer)", s.KicksExpel, s.KicksWake, s.KicksTimer)
	}),
	ofScheduler("repairs", func(s *node.SchedulerStatus, _ QOS) string {
		return fmt.Sprintf("%d records of CPUs were wrong, %d events were lost", s.Drift, s.Lost)
	}),
	ofScheduler("progress", func(s *node.SchedulerStatus, q QOS) string {
		return fmt.Sprintf("oldest wait %v; %d let run in relief; %d demoted, %d of them now", Brief(s.OldestWait), s.Relief, q.Means.Demotions, q.Means.Demoted)
	}),
	{Name: "strays", Text: func(q QOS) string {
		if q.Means.Scheduler == nil && q.Means.Strays == 0 {
			return ""
		}
		return fmt.Sprintf("%d found, %d converted, %d real-time left alone", q.Means.Strays, q.Means.Converted, q.Means.Realtime)
	}},
	{Name: "slices", Text: func(q QOS) string {
		if q.Means.OwnSlices == 0 {
			return ""
		}
		return fmt.Sprintf("%d threads keep their own, or are of SCHED_IDLE: on their CPU the long slice does nothing", q.Means.OwnSlices)
	}},
}

// ofScheduler is a fact about the BE scheduler. It has no text if the scheduler
// has not run.
func ofScheduler(name string, text func(*node.SchedulerStatus, QOS) string) table.Column[QOS] {
	return table.Column[QOS]{Name: name, Text: func(q QOS) string {
		if q.Means.Scheduler == nil {
			return ""
		}
		return text(q.Means.Scheduler, q)
	}}
}

// queuesText counts the threads that wait in the queues of the BE scheduler.
func queuesText(s *node.SchedulerStatus) string {
	var waiting node.SchedulerQueue
	var each []string
	for _, q := range s.Queues {
		waiting.Waiting, waiting.Urgent, waiting.Pinned = waiting.Waiting+q.Waiting, waiting.Urgent+q.Urgent, waiting.Pinned+q.Pinned
		each = append(each, fmt.Sprint(q.Waiting+q.Urgent+q.Pinned))
	}
	text := fmt.Sprintf("%d waiting, %d urgent, %d for one CPU, %d for their quota", waiting.Waiting, waiting.Urgent, waiting.Pinned, s.Parked)
	if len(each) > 1 {
		text += "; by L3 cache: " + strings.Join(each, " ")
	}
	return text
}

// printExit returns the reason why the scheduler ended, as text.
func printExit(e node.SchedulerExit) string {
	s := string(e.Kind)
	for _, text := range []string{e.Reason, e.Message} {
		if text != "" {
			s += ": " + text
		}
	}
	if e.Code != 0 {
		s += fmt.Sprintf(" (code %d)", e.Code)
	}
	return s
}

func rounded(d time.Duration) string { return Brief(d).String() }
