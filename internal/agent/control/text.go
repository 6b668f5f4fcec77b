package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// Size prints an amount of memory for people: "1.5Gi".
func Size(b unit.Bytes) string {
	if b == unit.MaxBytes {
		return "max"
	}
	f, suffixes := float64(b), []string{"", "Ki", "Mi", "Gi", "Ti"}
	i := 0
	for ; f >= 1024 && i < len(suffixes)-1; i++ {
		f /= 1024
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f%s", f, suffixes[i])
	}
	return fmt.Sprintf("%.1f%s", f, suffixes[i])
}

// Shown prints a value by text. It returns "?" for a missing value.
func Shown[T any](m node.Maybe[T], text func(T) string) string {
	if v, known := m.Value(); known {
		return text(v)
	}
	return "?"
}

// PrintDuration prints a duration in a unit that suits its size.
func PrintDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Printable escapes control characters in a text of several lines. They may be in
// a cgroup's name, because users may create cgroups.
func Printable(text string) string { return printable.Lines(text) }

// String returns the text of tenon status.
func (s Status) String() string {
	var b strings.Builder
	printable.Value(s).describe(&b)
	return Printable(b.String())
}

func (s Status) describe(b *strings.Builder) {
	for _, t := range s.Troubles {
		fmt.Fprintf(b, "TROUBLE (%s): %s\n\n", t.Kind, t.Text)
	}
	if s.At.IsZero() {
		fmt.Fprintf(b, "tenond %s has started and has made no tick yet.\n", s.Version)
		if s.Blind != "" {
			fmt.Fprintf(b, "The node cannot be read: %s\n", s.Blind)
		}
		return
	}
	table.WriteFacts(b, statusFacts, s)
	if s.Blind != "" {
		fmt.Fprintf(b, "\nThe node cannot be read now; this is from before: %s\n", s.Blind)
	}
	b.WriteByte('\n')
	table.Write(b, "", classColumns, s.Classes)
	if len(s.Classes) == 0 {
		b.WriteString("No cgroup matches a rule.\n")
	}
	for _, w := range s.Failing {
		fmt.Fprintf(b, "\nfailing: %v %q -> %q: %s\n", w.Knob, w.Old, w.New, w.Error)
	}
	if len(s.Recent) > 0 {
		b.WriteString("\nLast writes:\n")
		for _, w := range s.Recent[:min(len(s.Recent), 5)] {
			fmt.Fprintln(b, Line(w))
		}
	}
}

// String prints the steps, those of the policy with the most first.
func (s *Shadow) String() string {
	var sum int64
	for _, n := range s.Steps {
		sum += n
	}
	if sum == 0 {
		return "nothing is written; it would have made no write"
	}
	owners := slices.SortedFunc(maps.Keys(s.Steps), func(a, b plan.Owner) int { return cmp.Or(cmp.Compare(s.Steps[b], s.Steps[a]), cmp.Compare(a, b)) })
	parts := make([]string, 0, len(owners))
	for _, o := range owners {
		parts = append(parts, fmt.Sprintf("%v %d", o, s.Steps[o]))
	}
	return fmt.Sprintf("nothing is written; it would have made %s: %s", table.Count(int(sum), "write"), strings.Join(parts, ", "))
}

// statusFacts is the head of tenon status.
var statusFacts = []table.Column[Status]{
	{Name: "tenond", Text: func(s Status) string {
		return fmt.Sprintf("%s, up %s, %d ticks", s.Version, PrintDuration(s.At.Sub(s.Started)), s.Ticks)
	}},
	{Name: "last tick", Text: func(s Status) string {
		return fmt.Sprintf("%s: sense %v, decide %v, act %v", s.At.Format(time.TimeOnly),
			s.Took.Sense.Round(time.Microsecond), s.Took.Decide.Round(time.Microsecond), s.Took.Act.Round(time.Microsecond))
	}},
	{Name: "node", Text: func(s Status) string {
		return fmt.Sprintf("%d CPUs, %s in use; %s of %s memory in use", s.Node.CPUs,
			Shown(s.Node.CPU, unit.MilliCPU.String), Shown(s.Node.Memory, Size), Shown(s.Node.MemoryTotal, Size))
	}},
	{Name: "observes", Text: func(s Status) string {
		if s.Shadow == nil {
			return ""
		}
		return s.Shadow.String()
	}},
	{Name: "knobs", Text: func(s Status) string {
		return fmt.Sprintf("%d not as they were before Tenon, %d cannot be written", s.Held, len(s.Failing))
	}},
	{Name: "isolation", Text: func(s Status) string {
		if s.Shadow != nil || s.Isolation.Mechanism == "" && s.Isolation.Failures == 0 {
			return ""
		}
		return s.Isolation.describe(s.At)
	}},
	{Name: "BE bound", Text: func(s Status) string {
		not := ""
		if s.Shadow != nil {
			not = "not written: "
		}
		return table.Lines(s.Bounds, func(k Knob) string { return fmt.Sprintf("%s%v %s  # %s", not, k.Knob, quoted(k.Want), k.Reason) })
	}},
	{Name: "watermark", Text: func(s Status) string {
		if s.Watermark == nil {
			return ""
		}
		return s.Watermark.String()
	}},
	{Name: "missed", Text: func(s Status) string {
		missed, more := s.Missed(maxMissed)
		lines := table.Lines(missed, func(w Workload) string { return w.Miss(s.At) })
		if more > 0 {
			lines += fmt.Sprintf("\nand %d more", more)
		}
		return lines
	}},
	{Name: "misfit", Text: func(s Status) string {
		return table.Lines(s.misfits(), func(w Workload) string { return w.Named() + ": " + w.Misfit.Text })
	}},
	{Name: "batch", Text: func(s Status) string {
		if !s.Batch.Enabled() {
			return ""
		}
		return printBatch(s.Batch)
	}},
}

// classColumns are what tenon status shows of a class.
var classColumns = []table.Column[Class]{
	{Name: "CLASS", Text: func(c Class) string { return string(c.Class) }},
	{Name: "WORKLOADS", Text: func(c Class) string { return fmt.Sprint(c.Workloads) }},
	{Name: "CPU", Text: func(c Class) string { return Shown(c.CPU, unit.MilliCPU.String) }},
	{Name: "MEMORY", Text: func(c Class) string { return Shown(c.Memory, Size) }},
}

// inputColumns are what tenon explain shows of a workload in a cgroup.
var inputColumns = []table.Column[Workload]{
	{Text: func(w Workload) string { return string(w.ID) }},
	{Text: func(w Workload) string { return string(w.Class) }},
	{Text: func(w Workload) string { return "CPU " + Shown(w.CPU, unit.MilliCPU.String) }},
	{Text: func(w Workload) string { return "memory " + Shown(w.Memory, Size) }},
	{Text: ruled},
}

// maxMissed is the number of missed objectives in a text.
const maxMissed = 5

// Missed returns the first workloads that miss their objective, the longest miss
// first, and the number of the others.
func (s Status) Missed(most int) (missed []Workload, more int) {
	for _, w := range s.Workloads {
		if w.Verdict != nil && w.Verdict.Judgement.Verdict == slo.Missed {
			missed = append(missed, w)
		}
	}
	slices.SortFunc(missed, func(a, b Workload) int {
		return cmp.Or(a.Verdict.Judgement.Since.Compare(b.Verdict.Judgement.Since), compareIDs(a, b))
	})
	if len(missed) > most {
		missed, more = missed[:most], len(missed)-most
	}
	return missed, more
}

// Miss prints that a workload misses its objective, for how long and why: "web for
// 12s: best-effort (batch/job 64 %)".
func (w Workload) Miss(at time.Time) string {
	return fmt.Sprintf("%s for %s: %s", w.Named(), PrintDuration(at.Sub(w.Verdict.Judgement.Since)), w.Verdict.Blame())
}

// maxMisfits is the number of misfits (workloads with a wrong CPU limit) in a text.
const maxMisfits = 5

// misfits returns the first maxMisfits misfits.
func (s Status) misfits() []Workload {
	var all []Workload
	for _, w := range s.Workloads {
		if w.Misfit != nil && len(all) < maxMisfits {
			all = append(all, w)
		}
	}
	return all
}

// Line returns a write as one line.
func Line(w record.Write) string {
	w = printable.Value(w)
	s := fmt.Sprintf("%s %v %s -> %s  # %s", w.At.Format(time.TimeOnly), w.Knob, quoted(w.Old), quoted(w.New), w.Why)
	if w.Woken != "" {
		s += " (woken by " + w.Woken + ")"
	}
	if w.Outcome == record.Failed {
		s += " (failed: " + w.Error + ")"
	}
	return Printable(s)
}

func quoted(value string) string {
	if value == "" {
		return `""`
	}
	return value
}

// String returns the text of tenon explain.
func (e Explanation) String() string {
	var b strings.Builder
	e = printable.Value(e)
	if e.Batch != nil {
		describeBatch(&b, *e.Batch, e.At)
		return Printable(b.String())
	}
	if e.Trials != nil {
		describeSelection(&b, *e.Selection, e.At)
		b.WriteByte('\n')
		b.WriteString(trialsPage(*e.Trials, e.At, PrintDuration))
		if e.Watermark != nil {
			fmt.Fprintf(&b, "\n%s.\n", e.Watermark)
		}
		return Printable(b.String())
	}
	if w := e.Workload; w != nil {
		w.describe(&b, e.At)
		for _, effect := range e.Effects {
			b.WriteString(trialEffect(effect, e.At, PrintDuration))
		}
		if e.Reclaim != nil {
			e.Reclaim.describe(&b)
		}
	} else {
		fmt.Fprintf(&b, "%s: a cgroup\n", node.Knob{Cgroup: e.Cgroup}.Object())
	}
	if e.Watermark != nil {
		fmt.Fprintf(&b, "%s.\n", e.Watermark)
	}
	if len(e.Inputs) > 0 {
		b.WriteString("\nIn it:\n")
		table.WriteRows(&b, "  ", inputColumns, e.Inputs)
		if e.More > 0 {
			fmt.Fprintf(&b, "  and %d more\n", e.More)
		}
	}
	for _, k := range e.Knobs {
		b.WriteByte('\n')
		k.describe(&b, e.At)
	}
	if e.Selection != nil {
		b.WriteByte('\n')
		describeSelection(&b, *e.Selection, e.At)
	}
	if len(e.Knobs) == 0 {
		b.WriteString("\nNo policy asks for anything here.\n")
	}
	return Printable(b.String())
}

func ruled(w Workload) string {
	if w.Rule == "" {
		return "no rule"
	}
	return "rule " + w.Rule
}

func (w Workload) describe(b *strings.Builder, at time.Time) {
	fmt.Fprintf(b, "%s: a workload of class %s, by %s%s\n", w.Named(), w.Class, ruled(w), w.Slice.Suffix())
	fmt.Fprintf(b, "  uses       CPU %s, memory %s", Shown(w.CPU, unit.MilliCPU.String), Shown(w.Memory, Size))
	if held, known := w.Throttled.Value(); known && held > 0 {
		fmt.Fprintf(b, ", held back by its own quota %v of the time", held)
	}
	b.WriteByte('\n')
	if p99, known := w.DelayP99.Value(); known {
		fmt.Fprintf(b, "  waits      P99 < %v", p99)
		if want, is := w.Objective.Value(); is {
			fmt.Fprintf(b, ", of %v wanted", want)
		}
		if who := WaitedFor(w.Waits); who != "" {
			fmt.Fprintf(b, "; in a second it waited %s", who)
		}
		b.WriteByte('\n')
	}
	if p := w.Verdict; p != nil {
		fmt.Fprintf(b, "  objective  %s\n             %s\n", verdict.Wants(p.Objective()), p.Text("this machine", at, PrintDuration))
	}
	if s := w.Suggested; s != nil {
		fmt.Fprintf(b, "  objective  none. %s\n", verdict.Suggests(*s))
	}
	var asked []string
	if v, is := w.CPULimit.Value(); is {
		asked = append(asked, "at most "+v.String()+" of CPU")
	}
	if v, is := w.MemoryLimit.Value(); is {
		asked = append(asked, "at most "+Size(v)+" of memory")
	}
	if v, is := w.MemoryRequest.Value(); is {
		asked = append(asked, Size(v)+" of memory requested")
	}
	if len(asked) > 0 {
		fmt.Fprintf(b, "  asked for  %s\n", strings.Join(asked, ", "))
	}
	if m := w.Misfit; m != nil {
		fmt.Fprintf(b, "  misfit     %s, since %s (%s)\n", m.Text, m.Since.Format(time.DateTime), PrintDuration(at.Sub(m.Since)))
		fmt.Fprintf(b, "  write      %s\n", m.Write)
	}
	fmt.Fprintf(b, "  cgroup     %s", w.Cgroup)
	if w.ContentionRoot != w.Cgroup {
		fmt.Fprintf(b, ", which meets the other classes at %s", w.ContentionRoot)
	}
	b.WriteByte('\n')
}

func (k Knob) describe(b *strings.Builder, at time.Time) {
	fmt.Fprintf(b, "%v\n", k.Knob)
	value := func(name string, v *string, missing string) {
		if v != nil {
			missing = quoted(*v)
		}
		fmt.Fprintf(b, "  %-7s %s\n", name, missing)
	}
	unread := "cannot be read"
	if k.Intent == plan.Release && k.Before == nil { // a snapshot reads only what a policy may set, or Tenon has changed
		unread = "not read, because Tenon leaves it alone"
	}
	value("now", k.Now, unread)
	value("before", k.Before, "the same: Tenon has not changed it")
	switch k.Intent {
	case plan.Set:
		fmt.Fprintf(b, "  wanted  %s", quoted(k.Want))
	case plan.Release:
		b.WriteString("  wanted  what it was before")
	case plan.Pause:
		fmt.Fprintf(b, "  wanted  %s, held back for a while", quoted(k.Want))
	case plan.Abstain:
		b.WriteString("  wanted  left alone, an input is missing")
	default:
		b.WriteString("  wanted  nothing: no policy owns it now\n")
		return
	}
	fmt.Fprintf(b, ", by %s, since %s (%s)\n", k.Policy, k.Since.Format(time.DateTime), PrintDuration(at.Sub(k.Since)))
	fmt.Fprintf(b, "  because %s\n", k.Reason)
	if k.Wrote != nil {
		fmt.Fprintf(b, "  last    %s\n", Line(*k.Wrote))
	}
}
