package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	tableWidth = 100
	labelWidth = 15
	cellWidth  = 17
)

// The two pairs of the seeds' experiment: modes are comparable in latency only
// where they use the CPU equally.
var tables = []section{
	{"At equal utilisation", []Mode{Exclusive, Default65, Tenon65}},
	{"At full utilisation", []Mode{Exclusive, ExclusiveWarm, Default, Burstable, Tenon}},
}

// withRungs is the tables with those of the rungs that were asked for.
func withRungs(e Experiment) []section {
	rungs := slices.DeleteFunc(slices.Clone(RungModes), func(m Mode) bool { return !slices.Contains(e.Modes, m) })
	if len(rungs) == 0 {
		return tables
	}
	return append(slices.Clone(tables), section{"One rung of the ladder at a time", append([]Mode{Exclusive, Default}, rungs...)})
}

// A section is a table with a title.
type section struct {
	title string
	modes []Mode
}

// A view is what of an experiment is shown, and how it is called.
type view struct {
	title  string
	tables []section
	rows   []row
	names  map[Mode]string // heads of columns; without one the mode's own name
}

func (v view) name(m Mode) string { return cmp.Or(v.names[m], string(m)) }

func viewOf(e Experiment) view {
	switch {
	case e.isMemory():
		return view{title: "Memory: a service beside a memory hog", tables: memoryTables, rows: memoryRows}
	case e.Kind == KindKernelQOS:
		return ladderView(e)
	}
	v := view{title: "What colocation cost and won", tables: withRungs(e), rows: rows}
	if e.Kubernetes != nil {
		v.rows = append(slices.Clone(rows), row{"node's CPUs", "", func(r Result, m Mode) string { return number(r.Modes[m].NodeMetricsCPU, 2) }})
	}
	return v
}

// A row of the table: absolute and relative.
type row struct {
	label string // a leading space marks a row that belongs to the one above
	unit  string // told by the legend where there is no room for it
	cell  func(r Result, m Mode) string
}

var rows = []row{
	{"RT-P50", "ms", latencyCell("p50", func(m ModeResult) Number { return m.P50 })},
	{"RT-P75", "ms", latencyCell("p75", func(m ModeResult) Number { return m.P75 })},
	{"RT-P90", "ms", latencyCell("p90", func(m ModeResult) Number { return m.P90 })},
	{"RT-P99", "ms", latencyCell("p99", func(m ModeResult) Number { return m.P99 })},
	{"  95 % interval", "", func(r Result, m Mode) string { return intervalCell(r.Ratios[m]["p99"], m) }},
	{"RT-P99.9", "ms", latencyCell("p999", func(m ModeResult) Number { return m.P999 })},
	{"CPU %", "", func(r Result, m Mode) string { return number(r.Modes[m].CPUPercent, 1) }},
	{"BE frames/s", "", func(r Result, m Mode) string { return framesCell(r.Modes[m]) }},
	{"run-queue delay", "µs", func(r Result, m Mode) string {
		return relativeCell(number(r.Modes[m].DelayPerRun, 2), r.RunDelay[m].ToExclusive, m)
	}},
	{"  95 % interval", "", func(r Result, m Mode) string { return intervalCell(r.RunDelay[m].ToExclusive, m) }},
}

func latencyCell(key string, median func(ModeResult) Number) func(Result, Mode) string {
	return func(r Result, m Mode) string {
		return relativeCell(scaled(median(r.Modes[m]), 1e-3, 3), r.Ratios[m][key], m)
	}
}

// relativeCell prints "0.548 (+2.8 %)".
func relativeCell(absolute string, i Interval, m Mode) string {
	if m == Exclusive || i.Blocks == 0 || absolute == unknown {
		return absolute
	}
	return fmt.Sprintf("%s (%s)", absolute, change(i.Estimate))
}

func intervalCell(i Interval, m Mode) string {
	if m == Exclusive || i.Blocks == 0 {
		return ""
	}
	return span(i)
}

// framesCell prints the frame rate and the share of what idle CPU could give.
func framesCell(m ModeResult) string {
	if !m.Goodput.Known() {
		if m.FramesPerS == 0 {
			return unknown
		}
		return number(m.FramesPerS, 1)
	}
	return fmt.Sprintf("%s (%.0f %%)", number(m.FramesPerS, 1), 100*float64(m.Goodput))
}

// present returns which of modes have a result.
func (r Result) present(modes []Mode) []Mode {
	return slices.DeleteFunc(slices.Clone(modes), func(m Mode) bool { _, ok := r.Modes[m]; return !ok })
}

// WriteTable prints the result for a terminal of 100 columns: the seeds'
// table at equal and at full utilisation, the claims in sentences, void runs
// and caveats.
func WriteTable(w io.Writer, r Result) error {
	var b bytes.Buffer
	writeParagraph(&b, "", headline(r))
	view := viewOf(r.Experiment)
	for _, t := range view.tables {
		modes := r.present(t.modes)
		if len(modes) < 2 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", t.title)
		line(&b, "", modes, view.name)
		b.WriteString(strings.Repeat("-", labelWidth+cellWidth*len(modes)) + "\n")
		for _, row := range view.rows {
			line(&b, row.label, modes, func(m Mode) string { return row.cell(r, m) })
		}
	}
	b.WriteByte('\n')
	writeParagraph(&b, "", legend(r))
	if len(r.Claims) > 0 {
		b.WriteString("\nClaims\n")
	}
	for _, c := range r.Claims {
		writeParagraph(&b, fmt.Sprintf("%-11s", strings.ToUpper(string(c.Verdict))), c.Statement+".")
		writeParagraph(&b, strings.Repeat(" ", 11), c.Explanation)
	}
	if r.Control != nil {
		b.WriteString("\nA/A control\n")
		writeParagraph(&b, "", controlText(r))
	}
	if len(r.VoidRuns) > 0 {
		fmt.Fprintf(&b, "\nVoid runs (not used): %d\n", len(r.VoidRuns))
	}
	for _, v := range r.VoidRuns {
		writeParagraph(&b, fmt.Sprintf("  %03d %-15s", v.Index, v.Mode), strings.Join(v.Reasons, "; "))
	}
	list(&b, "Rungs left out", skippedTexts(r.Experiment))
	list(&b, "Warnings", r.Warnings)
	list(&b, "Caveats", r.Experiment.Caveats)
	_, err := b.WriteTo(w)
	return err
}

// legend says how to read the table.
func legend(r Result) string {
	switch {
	case r.Experiment.isMemory():
		return memoryLegend
	case r.Experiment.Kind == KindKernelQOS:
		return ladderLegend(r)
	}
	nodes := ""
	if r.Experiment.Kubernetes != nil {
		nodes = " Node's CPUs: those in use by the metrics API of the cluster in a window of it that lies in the run; they include CPUs that are not tested."
		if !slices.ContainsFunc(slices.Collect(maps.Values(r.Modes)), func(m ModeResult) bool { return m.NodeMetricsCPU.Known() }) {
			nodes += fmt.Sprintf(" None is known: the cluster has no metrics API, or no window of it, which are ten seconds to a minute long, lies in a run of %v.", r.Experiment.Duration)
		}
	}
	return latencyLegend(r.Experiment) + ", median over blocks; run-queue delay in µs, the service's mean wait for a CPU per timeslice. " +
		"In brackets: change to exclusive, as the geometric mean of the ratios within blocks (not the quotient of the cells); " +
		"for BE frames/s: share of what the CPU left idle by exclusive would give at the solo rate." + nodes
}

// latencyLegend says from when latency counts.
func latencyLegend(e Experiment) string {
	if e.Client == "wrk" {
		return "Latency in ms from the actual send, as wrk counts it"
	}
	return "Latency in ms from the intended send time, without the requests that were due while the client's own CPU stood still"
}

func cpuWord(e Experiment) string {
	if e.TestedCPUs.Len() > 1 {
		return "CPUs"
	}
	return "CPU"
}

// headline says in a sentence what was measured.
func headline(r Result) string {
	e := r.Experiment
	switch {
	case e.isMemory():
		return memoryHeadline(r)
	case e.Kind == KindKernelQOS:
		return ladderHeadline(r)
	}
	cpus := cpuWord(e)
	text := fmt.Sprintf("nginx on %s %s, %.0f requests/s offered", cpus, e.TestedCPUs, e.OfferedRate)
	if e.LoadPercent > 0 {
		text += fmt.Sprintf(" (%.0f %% of capacity)", e.LoadPercent)
	}
	if e.Client == "wrk" {
		text = fmt.Sprintf("nginx on %s %s, closed loop (wrk)", cpus, e.TestedCPUs)
	}
	return text + fmt.Sprintf("; ffmpeg, %s of %s; %s, %s a run, %s.", plural(e.BEProcesses, "process", "processes"),
		plural(e.BEThreads, "thread", "threads"), plural(r.Blocks, "block", "blocks"), e.Duration.Round(time.Second/10), plural(len(r.VoidRuns), "void run", "void runs"))
}

func controlText(r Result) string {
	c := r.Control
	text := fmt.Sprintf("%s to %s: P99 %s, half-width %s %%; run-queue delay %s.", ExclusiveAA, Exclusive, ratio(c.P99), scaled(c.HalfWidth, 100, 1), ratio(c.RunDelay))
	if c.Resolves {
		return text + fmt.Sprintf(" This resolves the margin of %s.", limit(r.Experiment.Margin))
	}
	return text + fmt.Sprintf(" This does not resolve the margin of %s.", limit(r.Experiment.Margin))
}

func line(b *bytes.Buffer, label string, modes []Mode, cell func(Mode) string) {
	text := pad(label, -labelWidth)
	for _, m := range modes {
		text += pad(cell(m), cellWidth)
	}
	b.WriteString(strings.TrimRight(text, " ") + "\n")
}

// pad fills s to width characters, on the left, or on the right if width is negative.
func pad(s string, width int) string {
	if width < 0 {
		return s + strings.Repeat(" ", max(-width-runes(s), 0))
	}
	return strings.Repeat(" ", max(width-runes(s), 1)) + s
}

// writeParagraph wraps text behind head, with the following lines indented as far.
func writeParagraph(b *bytes.Buffer, head, text string) {
	indent := strings.Repeat(" ", runes(head))
	for i, l := range wrap(text, tableWidth-runes(head)) {
		if i > 0 {
			head = indent
		}
		b.WriteString(strings.TrimRight(head+l, " ") + "\n")
	}
}

func list(b *bytes.Buffer, title string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, "\n%s\n", title)
	}
	for _, item := range items {
		writeParagraph(b, "  - ", item)
	}
}
