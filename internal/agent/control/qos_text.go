package control

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
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
	rest := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	describeMeans(rest, q.Means, q.Selection.Slotless)
	if len(q.Selection.Failures) == 0 {
		fmt.Fprintln(rest, "failures\tnone in the last hour")
	}
	for _, f := range q.Selection.Failures {
		fmt.Fprintf(rest, "failure\t%s %s: %s\n", f.At.Format(time.TimeOnly), f.Mechanism, f.Why)
	}
	for _, k := range q.Knobs {
		now := "?"
		if k.Now != nil {
			now = *k.Now
		}
		switch {
		case k.Intent == plan.Abstain:
			now += ", left alone: " + k.Reason
		case k.Intent == plan.Hold:
			now += ", held back from " + k.Want + ": " + k.Reason
		case now != k.Want:
			now += ", wanted " + k.Want
		}
		fmt.Fprintf(rest, "knob\t%v: %s\n", k.Knob, now)
	}
	for _, w := range q.Failing {
		fmt.Fprintf(rest, "failing\t%v %q -> %q: %s\n", w.Knob, w.Old, w.New, w.Error)
	}
	_ = rest.Flush()
}

// describeSelection writes the mechanism in use, the reason, and the state of all mechanisms.
func describeSelection(b *strings.Builder, l node.Selection, at time.Time) {
	head := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(head, "mechanism\t%s", shownMechanism(l.Mechanism))
	if !l.Since.IsZero() {
		fmt.Fprintf(head, ", since %s (%s)", l.Since.Format(time.DateTime), PrintDuration(at.Sub(l.Since)))
	}
	fmt.Fprintf(head, "\nbecause\t%s\n", l.Why)
	switch {
	case l.ByHand:
		fmt.Fprintf(head, "pinned\t%s, by hand: tenon isolation auto gives the choice back to the configuration\n", l.Pinned)
	case l.Pinned != "":
		fmt.Fprintf(head, "pinned\t%s, by the configuration\n", l.Pinned)
	}
	_ = head.Flush() // a write to memory cannot fail
	b.WriteByte('\n')
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MECHANISM\tNODE CAN\tNOW\tWHY")
	for _, r := range l.Mechanisms {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Mechanism, r.Can, printState(l, r, at), r.Why)
	}
	_ = table.Flush()
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

func describeMeans(w *tabwriter.Writer, m node.IsolationStatus, slotless int) {
	s := m.Scheduler
	if s != nil {
		describeScheduler(w, s, m.Loads)
	}
	if len(m.Exits) > 0 {
		var all []string
		for _, k := range node.ExitKinds {
			if n := m.Exits[k]; n > 0 {
				all = append(all, fmt.Sprintf("%d %s", n, k))
			}
		}
		fmt.Fprintf(w, "exits\t%s; the last at %s: %s\n", strings.Join(all, ", "), m.LastExit.At.Format(time.TimeOnly), printExit(m.LastExit))
	}
	if slotless > 0 {
		fmt.Fprintf(w, "slots\t%d BE workloads share one: there are %d, and they have no weight and no quota of their own\n", slotless, node.SchedulerSlots-1)
	}
	if m.Refused != "" {
		fmt.Fprintf(w, "untold\tit has not accepted all of its orders: %s\n", m.Refused)
	}
	if s != nil {
		describeCounts(w, s)
		fmt.Fprintf(w, "progress\toldest wait %v; %d let run in relief; %d spilled, %d of them now\n", Brief(s.OldestWait), s.Relief, m.Demotions, m.Demoted)
	}
	if s != nil || m.Strays > 0 {
		fmt.Fprintf(w, "strays\t%d found, %d converted, %d real-time left alone\n", m.Strays, m.Converted, m.Realtime)
	}
	if m.OwnSlices > 0 {
		fmt.Fprintf(w, "slices\t%d threads keep their own, or are of SCHED_IDLE: on their CPU the long slice does nothing\n", m.OwnSlices)
	}
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

func describeScheduler(w *tabwriter.Writer, s *node.SchedulerStatus, loads uint64) {
	fmt.Fprintf(w, "scheduler\t%s, ", s.State)
	if s.Running {
		fmt.Fprintf(w, "loaded %s", s.Since.Format(time.DateTime))
	} else {
		fmt.Fprint(w, "not Tenon's now; what it did last")
	}
	fmt.Fprintf(w, "; loads %d; interface of Linux %s\n", loads, s.Variant)
}

func describeCounts(w *tabwriter.Writer, s *node.SchedulerStatus) {
	var run []string
	for _, c := range node.SchedulerClasses {
		run = append(run, fmt.Sprintf("%s %v", c, Brief(s.Run[c])))
	}
	fmt.Fprintf(w, "run\t%s; idle %v; BE outside of it %v\n", strings.Join(run, ", "), Brief(s.Idle), Brief(s.Strayed))
	delay := node.RunQueueDelay{Counts: s.ExpelDelay}
	bound := func(q float64) string { return Shown(delay.Quantile(q), rounded) }
	fmt.Fprintf(w, "beside LS\t%d expelled (P50 < %s, P90 < %s), %d refused; %v kept idle for LS, %v held after it\n",
		s.Expels, bound(0.5), bound(0.9), s.Refusals, Brief(s.ExpelIdle), Brief(s.HoldIdle))
	fmt.Fprintf(w, "\t%d started there and were stopped (%d races, %d resumed)\n", s.Violations, s.Races, s.Resumed)
	var waiting node.SchedulerQueue
	for _, q := range s.Queues {
		waiting.Waiting, waiting.Urgent, waiting.Pinned = waiting.Waiting+q.Waiting, waiting.Urgent+q.Urgent, waiting.Pinned+q.Pinned
	}
	fmt.Fprintf(w, "queues\t%d waiting, %d urgent, %d for one CPU, %d for their quota", waiting.Waiting, waiting.Urgent, waiting.Pinned, s.Parked)
	if len(s.Queues) > 1 {
		var each []string
		for _, q := range s.Queues {
			each = append(each, fmt.Sprint(q.Waiting+q.Urgent+q.Pinned))
		}
		fmt.Fprintf(w, "; by L3 cache: %s", strings.Join(each, " "))
	}
	fmt.Fprintf(w, "\nlimits\t%d throttled by their quota, %d by the cap of all BE, %d kept off cores left to LS\n", s.Throttled, s.Capped, s.Headroom)
	fmt.Fprintf(w, "kicks\t%d to expel, %d to wake (%d by timer)\n", s.KicksExpel, s.KicksWake, s.KicksTimer)
	fmt.Fprintf(w, "repairs\t%d records of CPUs were wrong, %d events were lost\n", s.Drift, s.Lost)
}

func rounded(d time.Duration) string { return Brief(d).String() }
