package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// These are the styles of the screen. Letters and words show the same
// information, so that nothing is lost with NO_COLOR or on a plain terminal.
var (
	bold     = ansi.Style{}.Bold()
	faint    = ansi.Style{}.Faint()
	chosen   = ansi.Style{}.Reverse(true)
	alarming = ansi.Style{}.Bold().ForegroundColor(ansi.Red)
	classes  = map[node.Class]ansi.Style{
		node.LSE: ansi.Style{}.ForegroundColor(ansi.Green), node.LSR: ansi.Style{}.ForegroundColor(ansi.Green),
		node.LS: ansi.Style{}.ForegroundColor(ansi.Green), node.System: ansi.Style{}.ForegroundColor(ansi.Cyan),
		node.BE: ansi.Style{}.ForegroundColor(ansi.Yellow),
	}
)

// View draws the screen.
func (m model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "tenon top"
	return v
}

// screen returns the text of the screen: at most height lines of at most width
// characters.
func (m model) screen() string {
	lines := m.overview()
	if m.page() != "" {
		lines = m.window()
	}
	lines = lines[:min(len(lines), m.height)]
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, m.width, "…")
	}
	return strings.Join(lines, "\n")
}

// page returns the text that is shown in place of the overview, or "".
func (m model) page() string {
	if m.help {
		return helpText
	}
	return m.detail
}

// window returns the part of the page that fits the screen.
func (m model) window() []string {
	lines := m.wrapPage()
	lines = lines[min(m.scroll, len(lines)-1):]
	lines = lines[:min(len(lines), max(m.height-1, 1))]
	return append(lines, faint.Styled("up, down: scroll   any other key: back"))
}

// wrapPage returns the page in lines that fit the screen.
func (m model) wrapPage() []string {
	text := ansi.Wrap(strings.TrimRight(m.page(), "\n"), m.width, "/-")
	// Wrap leaves the blank before a flag at the end of a line, which is then too
	// wide by one.
	return strings.Split(strings.ReplaceAll(text, " \n", "\n"), "\n")
}

// overview returns the main screen: the node, the workloads and the last writes.
func (m model) overview() []string {
	keys := faint.Styled("q quit   s sort by " + orderNames[(m.order+1)%orders] + "   w waits   arrows move   enter explain   ? help")
	if !m.seen || m.status.At.IsZero() {
		lines := []string{"waiting for the first tick of tenond"}
		if m.silent != nil {
			lines = append(lines, alarming.Styled(printable.Text(m.silent.Error())))
		}
		return append(lines, keys)
	}
	lines := append(m.head(), m.drawUsage()...)
	lines = append(lines, m.isolation()...)
	lines = append(lines, m.missed()...)
	lines = append(lines, m.bounds()...)
	writes := m.lastWrites()
	room := max(m.height-len(lines)-len(writes)-1, 1)
	workloads, services := m.columns()
	if m.waits {
		lines = append(lines, m.table(room, services, "no service matches a rule", alarm)...)
	} else {
		lines = append(lines, m.table(room, workloads, "no cgroup matches a rule", func(w control.Workload) ansi.Style { return classes[w.Class] })...)
	}
	lines = append(lines, writes...)
	return append(lines, keys)
}

func (m model) head() []string {
	s := m.status
	took := s.Took.Sense + s.Took.Decide + s.Took.Act
	lines := []string{bold.Styled("tenon top") + fmt.Sprintf("  %s  up %s  %d workloads  %d knobs held  tick %v",
		s.At.Format(time.TimeOnly), control.PrintDuration(s.At.Sub(s.Started)), len(s.Workloads), s.Held, took.Round(10*time.Microsecond))}
	switch {
	case m.silent != nil:
		lines = append(lines, alarming.Styled("no news: "+printable.Text(m.silent.Error())))
	case s.Blind != "":
		lines = append(lines, alarming.Styled("the node cannot be read: "+printable.Text(s.Blind)))
	case len(s.Failing) > 0:
		lines = append(lines, alarming.Styled(fmt.Sprintf("cannot be written (%d): %s", len(s.Failing), brief(s.Failing[0]))))
	}
	return lines
}

// isolation returns the line about the isolation mechanism in use and its cost.
func (m model) isolation() []string {
	i := m.status.Isolation
	if i.Mechanism == "" {
		return nil
	}
	s := "mechanism  " + string(i.Mechanism)
	if i.ByHand {
		s += " (by hand)"
	}
	if d := m.status.At.Sub(i.Since); !i.Since.IsZero() {
		s += " for " + control.PrintDuration(d)
	}
	if e, known := i.Expelled.Value(); known {
		s += fmt.Sprintf("  expelled %v  held %s", e, control.Shown(i.Held, unit.MilliCPU.String))
	}
	failures := fmt.Sprintf("failures %d", i.Failures)
	if i.Failures > 0 {
		failures = alarming.Styled(failures)
	}
	return []string{fmt.Sprintf("%s  %s  strays %d", s, failures, i.Strays)}
}

// missed returns the lines about missed objectives, the longest miss first.
func (m model) missed() []string {
	const most = 3
	missed, more := m.status.Missed(most)
	var lines []string
	for _, w := range missed {
		lines = append(lines, alarming.Styled("missed")+" "+printable.Text(w.Miss(m.status.At)))
	}
	if more > 0 {
		lines = append(lines, faint.Styled(fmt.Sprintf("       and %d more missed objectives", more)))
	}
	return lines
}

// bounds returns the lines about the limits of best-effort work, with their reasons.
func (m model) bounds() []string {
	const most = 3
	var lines []string
	for i, k := range m.status.Bounds {
		if i == most {
			lines = append(lines, faint.Styled(fmt.Sprintf("      and %d more bounds", len(m.status.Bounds)-most)))
			break
		}
		lines = append(lines, "bound "+knob(k.Knob)+" = "+k.Want+"  "+faint.Styled(printable.Text(k.Reason)))
	}
	return lines
}

// A column shows a value of a workload. Its width is negative if the text stands at
// the left, and 0 in the last column.
type column struct {
	name  string
	width int
	text  func(control.Workload) string
}

// columns returns the columns of the workloads and of the services.
func (m model) columns() (workloads, services []column) {
	const service = 28
	by := " by " + orderNames[m.order]
	name := max(m.width-51, 10)
	workloads = []column{
		{"CLASS", -6, func(w control.Workload) string { return string(w.Class) }},
		{"CPU", 7, func(w control.Workload) string { return control.Shown(w.CPU, unit.MilliCPU.String) }},
		{"MEMORY", 7, func(w control.Workload) string { return control.Shown(w.Memory, control.Size) }},
		{"THROTTLED", 9, printThrottled},
		{"RULE", -12, func(w control.Workload) string { return ansi.Truncate(printable.Text(w.Rule), 12, "…") }},
		{"WORKLOAD" + by, 0, func(w control.Workload) string { return tail(printable.Text(w.Named()+nameWorker(w)), name) }},
	}
	services = []column{
		{"WAIT P99", 8, func(w control.Workload) string { return control.Shown(w.DelayP99, rounded) }},
		{"WANTED", 8, func(w control.Workload) string {
			if want, wanted := w.Objective.Value(); wanted {
				return rounded(want)
			}
			return "-"
		}},
		{"SERVICE" + by, -service, func(w control.Workload) string { return tail(printable.Text(string(w.ID)), service) }},
		{"WAITED IN A SECOND", 0, func(w control.Workload) string { return printable.Text(control.WaitedFor(w.Waits)) }},
	}
	return workloads, services
}

// table returns a table of as many workloads as fit into room lines. It includes
// the workload under the cursor. none is its text without workloads, and style
// that of the first cell.
func (m model) table(room int, columns []column, none string, style func(control.Workload) ansi.Style) []string {
	line := func(text func(column) string) (first, rest string) {
		for i, c := range columns {
			cell := fmt.Sprintf("%*s", c.width, text(c))
			if i == 0 {
				first = cell
			} else {
				rest += "  " + cell
			}
		}
		return first, rest
	}
	first, rest := line(func(c column) string { return c.name })
	lines := []string{"", bold.Styled(first + rest)}
	room = max(room-len(lines), 1)
	if len(m.rows) == 0 {
		return append(lines, none)
	}
	cursor := m.cursor()
	from := min(max(cursor-room/2, 0), max(len(m.rows)-room, 0))
	for i, w := range m.rows[from:min(from+room, len(m.rows))] {
		first, rest := line(func(c column) string { return c.text(w) })
		if from+i == cursor {
			lines = append(lines, chosen.Styled(first+rest))
		} else {
			lines = append(lines, style(w).Styled(first)+rest)
		}
	}
	return lines
}

// alarm returns the style of a service that waits longer than it should.
func alarm(w control.Workload) ansi.Style {
	p99, known := w.DelayP99.Value()
	if want, wanted := w.Objective.Value(); known && wanted && p99 > want {
		return alarming
	}
	return ansi.Style{}
}

func rounded(d time.Duration) string { return control.Brief(d).String() }

// printThrottled prints the part of the time for which a workload was
// throttled. A mark shows that the CPU limit does not fit the workload.
func printThrottled(w control.Workload) string {
	text := control.Shown(w.Throttled, unit.Percent.String)
	if w.Misfit != nil {
		text = "!" + text
	}
	return text
}

// nameWorker returns the name of a workload's virtual worker, or "".
func nameWorker(w control.Workload) string {
	if w.Slice == nil {
		return ""
	}
	return fmt.Sprintf(" (%s %d)", w.Slice.Slice, w.Slice.Worker)
}

// tail cuts off the start of a long path, because its end tells more.
func tail(s string, width int) string {
	over := ansi.StringWidth(s) - width
	if over <= 0 {
		return s
	}
	return ansi.TruncateLeft(s, over+1, "…")
}

// lastWrites returns the lines about the last writes, with their reasons.
func (m model) lastWrites() []string {
	n := min(max((m.height-14)/2, 1), len(m.status.Recent))
	lines := []string{"", bold.Styled("LAST WRITES")}
	if n == 0 {
		return append(lines, "none")
	}
	for _, w := range m.status.Recent[:n] {
		lines = append(lines, w.At.Format(time.TimeOnly)+" "+brief(w))
	}
	return lines
}

// brief returns a write as a short line, so that the reason fits into 80
// columns. The explanation of the workload has the details.
func brief(w record.Write) string {
	why := w.Why
	if w.Outcome == record.Failed {
		why = "failed: " + w.Error
	}
	if w.Woken != "" {
		kind, _, _ := strings.Cut(w.Woken, " ")
		why = "[" + strings.TrimSuffix(kind, ":") + "] " + why
	}
	return fmt.Sprintf("%s = %s  %s", knob(w.Knob), w.New, printable.Text(why))
}

// knob returns the name of a knob in a limited width.
func knob(k node.Knob) string {
	const widest = 24
	return tail(printable.Text(k.Object()), widest) + " " + string(k.File)
}

// helpText fits 80 columns and 24 rows, with the line below it.
const helpText = `tenon top: who uses the CPUs, and what Tenon does about it

  up, down, pgup, pgdown   move along the workloads
  enter                    explain the workload: its knobs, why, and since when
  s                        sort by cpu, memory, class or name
  w                        the waits of services for a CPU, or all workloads
  ? or h                   this help
  q, esc or ctrl+c         quit
The bars: L latency-sensitive (LSE, LSR, LS), S system, B best-effort,
| in use by what no rule matches, or by a class that the kernel does not
tell apart on that CPU, . idle. With many CPUs each is one figure, from 0
(up to 10 % busy) to 9, or a dot where it is less than 1 % busy.

CPU is in thousandths of one CPU: 1500m is one and a half. THROTTLED is the
share of the time in which the workload's own CPU quota held it back, with !
if the limit does not fit the workload: enter says what to write in its place.
A question mark is a number that the kernel does not give, or not yet.
MECHANISM: what keeps best-effort work off the CPUs of services (tenon isolation
status). EXPELLED, HELD: CPU kept idle beside them, and for a while after.
FAILURES: how often it failed in the last hour. STRAYS: threads outside of it.
WAIT P99: 99 of 100 waits ended sooner. WANTED: the objective. [delay],
[pressure], …: the event for which the write did not wait for its period.
tenon explain WORKLOAD prints what enter shows; tenon status -o json all.`
