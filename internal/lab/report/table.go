package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

const (
	LabelWidth = 15
	CellWidth  = 17
)

// LatencyRows are the latency rows that every study has. They show absolute and
// relative values.
var LatencyRows = []Row{
	{"RT-P50", "ms", LatencyCell("p50", func(m ModeResult) Number { return m.P50 })},
	{"RT-P75", "ms", LatencyCell("p75", func(m ModeResult) Number { return m.P75 })},
	{"RT-P90", "ms", LatencyCell("p90", func(m ModeResult) Number { return m.P90 })},
	{"  95 % interval", "", func(r Result, m Mode) string { return IntervalCell(r.Ratios[m]["p90"], m) }},
	{"RT-mean", "ms", LatencyCell("mean", func(m ModeResult) Number { return m.Mean })},
	{"RT-P99", "ms", LatencyCell("p99", func(m ModeResult) Number { return m.P99 })},
	{"  95 % interval", "", func(r Result, m Mode) string { return IntervalCell(r.Ratios[m]["p99"], m) }},
	{"RT-P99.9", "ms", LatencyCell("p999", func(m ModeResult) Number { return m.P999 })},
	{"CPU %", "", func(r Result, m Mode) string { return FormatNumber(r.Modes[m].CPUPercent, 1) }},
	{"BE frames/s", "", func(r Result, m Mode) string { return framesCell(r.Modes[m]) }},
	{"run-queue delay", "µs", func(r Result, m Mode) string {
		return relativeCell(FormatNumber(r.Modes[m].DelayPerRun, 2), r.RunDelay[m].ToExclusive, m)
	}},
	{"  95 % interval", "", func(r Result, m Mode) string { return IntervalCell(r.RunDelay[m].ToExclusive, m) }},
	{"waiting", "ms/s", func(r Result, m Mode) string {
		return relativeCell(Scaled(r.Modes[m].Waiting, 1e-3, 2), r.Waiting[m].ToExclusive, m)
	}},
	{"  95 % interval", "", func(r Result, m Mode) string { return IntervalCell(r.Waiting[m].ToExclusive, m) }},
}

// LatencyCell prints a percentile in ms, and its change relative to mode exclusive.
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
	return fmt.Sprintf("%s (%s)", absolute, Change(i.Estimate))
}

// IntervalCell prints the 95 % interval of a change relative to mode exclusive.
func IntervalCell(i Interval, m Mode) string {
	switch {
	case m == Exclusive || i.Blocks == 0:
		return ""
	case i.IsVague():
		return fmt.Sprintf("%d cannot tell", i.Blocks)
	}
	return Span(i)
}

// framesCell prints the frame rate, and its share of the rate that the idle CPU
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

// presentModes returns the modes in the list that have a result.
func presentModes(r Result, modes []Mode) []Mode {
	return slices.DeleteFunc(slices.Clone(modes), func(m Mode) bool { _, ok := r.Modes[m]; return !ok })
}

// WriteTable prints the result for a terminal of 100 columns. It prints the
// tables of the study, the claims in sentences, void runs and caveats.
func (a Analysis) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	r, study := a.Base, a.study
	textlayout.Paragraph(&b, "", study.Headline(r))
	for _, t := range study.Tables {
		modes := presentModes(r, t.Modes)
		if len(modes) < 2 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", t.Title)
		Line(&b, "", modes, study.head)
		b.WriteString(strings.Repeat("-", LabelWidth+CellWidth*len(modes)) + "\n")
		for _, row := range slices.Concat(study.Rows, stallRows(r)) {
			Line(&b, row.Label, modes, func(m Mode) string { return row.Cell(r, m) })
		}
	}
	b.WriteByte('\n')
	textlayout.Paragraph(&b, "", study.Legend(r))
	WriteClaims(&b, r.Claims)
	if r.Control != nil {
		b.WriteString("\nA/A control\n")
		textlayout.Paragraph(&b, "", controlText(r))
	}
	if len(r.VoidRuns) > 0 {
		fmt.Fprintf(&b, "\nVoid runs (not used): %d\n", len(r.VoidRuns))
	}
	for _, v := range r.VoidRuns {
		textlayout.Paragraph(&b, fmt.Sprintf("  %03d %-15s", v.Index, v.Mode), strings.Join(v.Reasons, "; "))
	}
	textlayout.List(&b, "Mechanisms left out", study.LeftOut)
	textlayout.List(&b, "Warnings", r.Warnings)
	textlayout.List(&b, "Caveats", r.Experiment.Caveats)
	if study.Ending != nil {
		textlayout.List(&b, endingTitle(r.Experiment), study.Ending(a.evidence, r))
	}
	_, err := b.WriteTo(w)
	return err
}

// endingTitle returns the title above the last sentences.
func endingTitle(e Experiment) string {
	text := "In short, compared with Tenon (95 % intervals in brackets)"
	if e.Ended == EndHand {
		text += "; stopped by hand, so nothing is final"
	}
	return text
}

// LatencyLegend names the moment at which a latency begins.
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

// controlText tells which margins the A/A control resolves.
func controlText(r Result) string {
	c := r.Control
	text := fmt.Sprintf("%s to %s:", ExclusiveAA, Exclusive)
	for i, m := range controlled {
		of := c.Metrics[m.Key]
		if i > 0 {
			text += ";"
		}
		resolves := "resolves"
		if !of.Resolves {
			resolves = "does not resolve"
		}
		text += fmt.Sprintf(" %s %s, which %s %s", m.Name, FormatRatio(of.Ratio), resolves, Limit(m.MarginOf(r.Experiment)))
	}
	return text + "."
}

// Line prints a line of a table.
func Line(b *bytes.Buffer, label string, modes []Mode, cell func(Mode) string) {
	text := textlayout.Pad(label, -LabelWidth)
	for _, m := range modes {
		text += textlayout.Pad(cell(m), CellWidth)
	}
	b.WriteString(strings.TrimRight(text, " ") + "\n")
}

// WriteClaims prints claims with their verdicts.
func WriteClaims(b *bytes.Buffer, claims []Claim) {
	if len(claims) > 0 {
		b.WriteString("\nClaims\n")
	}
	for _, c := range claims {
		textlayout.Paragraph(b, fmt.Sprintf("%-11s", strings.ToUpper(string(c.Verdict))), c.Statement+".")
		textlayout.Paragraph(b, strings.Repeat(" ", 11), c.Explanation)
	}
}

// head returns the heading of the column of a mode.
func (s Study) head(m Mode) string {
	if s.Heads {
		return cmp.Or(m.Spec().Head, string(m))
	}
	return string(m)
}

// The report warns if the client spoiled another share of the requests in a mode
// than in mode exclusive: the larger of the two shares is at least minShare, and
// more than unequalShares times the smaller one.
const minShare, unequalShares = 0.01, 1.25

// withStalls summarises the latencies of all requests of a mode, also of those
// that stalls of the client spoiled. If no run stored these, it returns nil.
func (ev Evidence) withStalls(mode Mode) *WithStalls {
	all := func(of func(load.Latency) float64) Number {
		return Number(stat.Median(ev.Sample(mode, func(r Run) float64 {
			if r.WithStalls == nil {
				return math.NaN()
			}
			return Positive(of(*r.WithStalls))
		})))
	}
	w := &WithStalls{
		LeftOut: Number(stat.Median(ev.Sample(mode, func(r Run) float64 { return KnownOrNaN(r.Spoiled, r.WithStalls != nil) }))),
		P50:     all(func(l load.Latency) float64 { return l.P50 }), P90: all(func(l load.Latency) float64 { return l.P90 }),
		P99: all(func(l load.Latency) float64 { return l.P99 }), P999: all(func(l load.Latency) float64 { return l.P999 }),
		Mean: all(func(l load.Latency) float64 { return l.Mean }),
	}
	if !w.P50.Known() {
		return nil
	}
	return w
}

// stallRows returns rows about the requests that stalls of the client spoiled,
// which the other rows leave out. If no run stored them, it returns none.
func stallRows(r Result) []Row {
	if !slices.ContainsFunc(r.Order, func(m Mode) bool { return r.Modes[m].WithStalls != nil }) {
		return nil
	}
	row := func(label, unit string, of func(WithStalls) string) Row {
		return Row{label, unit, func(r Result, m Mode) string {
			if w := r.Modes[m].WithStalls; w != nil {
				return of(*w)
			}
			return Unknown
		}}
	}
	return []Row{
		row("P90 with stalls", "ms", func(w WithStalls) string { return Scaled(w.P90, 1e-3, 3) }),
		row("P99 with stalls", "ms", func(w WithStalls) string { return Scaled(w.P99, 1e-3, 3) }),
		row("left out", "%", func(w WithStalls) string { return Scaled(w.LeftOut, 100, 1) }),
	}
}

// stallWarnings names the modes in which stalls of the client spoiled a larger
// or smaller share of the requests than in exclusive.
func stallWarnings(r Result) []string {
	base := r.Modes[Exclusive].WithStalls
	if base == nil {
		return nil
	}
	var out []string
	for _, m := range r.Order {
		w := r.Modes[m].WithStalls
		if w == nil || m == Exclusive {
			continue
		}
		if high := max(w.LeftOut, base.LeftOut); high >= minShare && high > unequalShares*min(w.LeftOut, base.LeftOut) {
			out = append(out, fmt.Sprintf("%s: stalls of the client left out %.1f %% of the requests, in %s %.1f %%: compare the rows with stalls, too", m, 100*float64(w.LeftOut), Exclusive, 100*float64(base.LeftOut)))
		}
	}
	return out
}
