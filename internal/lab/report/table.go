package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	TableWidth = 100
	LabelWidth = 15
	CellWidth  = 17
)

// LatencyRows are the latency rows of every study, absolute and relative.
var LatencyRows = []Row{
	{"RT-P50", "ms", LatencyCell("p50", func(m ModeResult) Number { return m.P50 })},
	{"RT-P75", "ms", LatencyCell("p75", func(m ModeResult) Number { return m.P75 })},
	{"RT-P90", "ms", LatencyCell("p90", func(m ModeResult) Number { return m.P90 })},
	{"RT-P99", "ms", LatencyCell("p99", func(m ModeResult) Number { return m.P99 })},
	{"  95 % interval", "", func(r Result, m Mode) string { return IntervalCell(r.Ratios[m]["p99"], m) }},
	{"RT-P99.9", "ms", LatencyCell("p999", func(m ModeResult) Number { return m.P999 })},
	{"CPU %", "", func(r Result, m Mode) string { return FormatNumber(r.Modes[m].CPUPercent, 1) }},
	{"BE frames/s", "", func(r Result, m Mode) string { return framesCell(r.Modes[m]) }},
	{"run-queue delay", "µs", func(r Result, m Mode) string {
		return relativeCell(FormatNumber(r.Modes[m].DelayPerRun, 2), r.RunDelay[m].ToExclusive, m)
	}},
	{"  95 % interval", "", func(r Result, m Mode) string { return IntervalCell(r.RunDelay[m].ToExclusive, m) }},
}

// LatencyCell prints a percentile in ms, with its change to exclusive.
func LatencyCell(key string, median func(ModeResult) Number) func(Result, Mode) string {
	return func(r Result, m Mode) string {
		return relativeCell(Scaled(median(r.Modes[m]), 1e-3, 3), r.Ratios[m][key], m)
	}
}

// relativeCell prints "0.548 (+2.8 %)".
func relativeCell(absolute string, i Interval, m Mode) string {
	if m == Exclusive || i.Blocks == 0 || absolute == Unknown {
		return absolute
	}
	return fmt.Sprintf("%s (%s)", absolute, change(i.Estimate))
}

// IntervalCell prints the 95 % interval of a change to exclusive.
func IntervalCell(i Interval, m Mode) string {
	if m == Exclusive || i.Blocks == 0 {
		return ""
	}
	return span(i)
}

// framesCell prints the frame rate and its share of the rate that the idle CPU
// could give.
func framesCell(m ModeResult) string {
	if !m.Goodput.Known() {
		if m.FramesPerS == 0 {
			return Unknown
		}
		return FormatNumber(m.FramesPerS, 1)
	}
	return fmt.Sprintf("%s (%.0f %%)", FormatNumber(m.FramesPerS, 1), 100*float64(m.Goodput))
}

// present returns which of modes have a result.
func present(r Result, modes []Mode) []Mode {
	return slices.DeleteFunc(slices.Clone(modes), func(m Mode) bool { _, ok := r.Modes[m]; return !ok })
}

// WriteTable prints the result for a terminal of 100 columns: the tables of the
// study, the claims in sentences, void runs and caveats.
func (a Analysis) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	r, study := a.Base, a.study
	WriteParagraph(&b, "", study.Headline(r))
	for _, t := range study.Tables {
		modes := present(r, t.Modes)
		if len(modes) < 2 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", t.Title)
		Line(&b, "", modes, study.head)
		b.WriteString(strings.Repeat("-", LabelWidth+CellWidth*len(modes)) + "\n")
		for _, row := range study.Rows {
			Line(&b, row.Label, modes, func(m Mode) string { return row.Cell(r, m) })
		}
	}
	b.WriteByte('\n')
	WriteParagraph(&b, "", study.Legend(r))
	WriteClaims(&b, r.Claims)
	if r.Control != nil {
		b.WriteString("\nA/A control\n")
		WriteParagraph(&b, "", controlText(r))
	}
	if len(r.VoidRuns) > 0 {
		fmt.Fprintf(&b, "\nVoid runs (not used): %d\n", len(r.VoidRuns))
	}
	for _, v := range r.VoidRuns {
		WriteParagraph(&b, fmt.Sprintf("  %03d %-15s", v.Index, v.Mode), strings.Join(v.Reasons, "; "))
	}
	List(&b, "Rungs left out", study.LeftOut)
	List(&b, "Warnings", r.Warnings)
	List(&b, "Caveats", r.Experiment.Caveats)
	_, err := b.WriteTo(w)
	return err
}

// LatencyLegend says from which time latency counts.
func LatencyLegend(e Experiment) string {
	if e.Client == "wrk" {
		return "Latency in ms from the actual send, as wrk counts it"
	}
	return "Latency in ms from the intended send time, without the requests that were due while the client's own CPU stood still"
}

// CPUWord returns CPU or CPUs.
func CPUWord(e Experiment) string {
	if e.TestedCPUs.Len() > 1 {
		return "CPUs"
	}
	return "CPU"
}

// controlText says how finely the A/A control distinguishes modes.
func controlText(r Result) string {
	c := r.Control
	text := fmt.Sprintf("%s to %s: P99 %s, half-width %s %%; run-queue delay %s.", ExclusiveAA, Exclusive, FormatRatio(c.P99), Scaled(c.HalfWidth, 100, 1), FormatRatio(c.RunDelay))
	if c.Resolves {
		return text + fmt.Sprintf(" This resolves the margin of %s.", Limit(r.Experiment.Margin))
	}
	return text + fmt.Sprintf(" This does not resolve the margin of %s.", Limit(r.Experiment.Margin))
}

// Line prints a line of a table.
func Line(b *bytes.Buffer, label string, modes []Mode, cell func(Mode) string) {
	text := pad(label, -LabelWidth)
	for _, m := range modes {
		text += pad(cell(m), CellWidth)
	}
	b.WriteString(strings.TrimRight(text, " ") + "\n")
}

// pad fills s with spaces to width characters, on the left, or on the right if
// width is negative.
func pad(s string, width int) string {
	if width < 0 {
		return s + strings.Repeat(" ", max(-width-Runes(s), 0))
	}
	return strings.Repeat(" ", max(width-Runes(s), 1)) + s
}

// WriteParagraph wraps text after head and indents the following lines to the
// width of head.
func WriteParagraph(b *bytes.Buffer, head, text string) {
	indent := strings.Repeat(" ", Runes(head))
	for i, l := range wrap(text, TableWidth-Runes(head)) {
		if i > 0 {
			head = indent
		}
		b.WriteString(strings.TrimRight(head+l, " ") + "\n")
	}
}

// WriteClaims prints claims with their verdicts.
func WriteClaims(b *bytes.Buffer, claims []Claim) {
	if len(claims) > 0 {
		b.WriteString("\nClaims\n")
	}
	for _, c := range claims {
		WriteParagraph(b, fmt.Sprintf("%-11s", strings.ToUpper(string(c.Verdict))), c.Statement+".")
		WriteParagraph(b, strings.Repeat(" ", 11), c.Explanation)
	}
}

// head returns the heading of the column of a mode.
func (s Study) head(m Mode) string {
	if s.Heads {
		return cmp.Or(m.Spec().Head, string(m))
	}
	return string(m)
}

// List prints items below a title.
func List(b *bytes.Buffer, title string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, "\n%s\n", title)
	}
	for _, item := range items {
		WriteParagraph(b, "  - ", item)
	}
}
