package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/stat"
)

const (
	LabelWidth = 15 // of a table with modes, in a terminal
	CellWidth  = 17
)

// LatencyRows are the latency rows that every study has. They show absolute and
// relative values.
var LatencyRows = []Row{
	{Name: "RT-P50", Unit: "ms", Text: LatencyCell("p50", func(m ModeResult) Number { return m.P50 })},
	{Name: "RT-P75", Unit: "ms", Text: LatencyCell("p75", func(m ModeResult) Number { return m.P75 })},
	{Name: "RT-P90", Unit: "ms", Text: LatencyCell("p90", func(m ModeResult) Number { return m.P90 })},
	LatencyInterval("p90"),
	{Name: "RT-mean", Unit: "ms", Text: LatencyCell("mean", func(m ModeResult) Number { return m.Mean })},
	{Name: "RT-P99", Unit: "ms", Text: LatencyCell("p99", func(m ModeResult) Number { return m.P99 })},
	LatencyInterval("p99"),
	{Name: "RT-P99.9", Unit: "ms", Text: LatencyCell("p999", func(m ModeResult) Number { return m.P999 })},
	{Name: "CPU %", Text: func(c InMode) string { return FormatNumber(c.of().CPUPercent, 1) }},
	{Name: "BE frames/s", Text: func(c InMode) string { return framesCell(c.of()) }},
	{Name: "run-queue delay", Unit: "µs", Text: func(c InMode) string {
		return relativeCell(FormatNumber(c.of().DelayPerRun, 2), c.Result.RunDelay[c.Mode].ToExclusive, c.Mode)
	}},
	DelayInterval,
	{Name: "waiting", Unit: "ms/s", Text: func(c InMode) string {
		return relativeCell(Scaled(c.of().Waiting, 1e-3, 2), c.Result.Waiting[c.Mode].ToExclusive, c.Mode)
	}},
	intervalRow(func(c InMode) Interval { return c.Result.Waiting[c.Mode].ToExclusive }),
}

// DelayInterval is the row with the interval of the change of the run-queue delay.
var DelayInterval = intervalRow(func(c InMode) Interval { return c.Result.RunDelay[c.Mode].ToExclusive })

// LatencyInterval is the row with the interval of the change of a percentile.
func LatencyInterval(key string) Row {
	return intervalRow(func(c InMode) Interval { return c.Result.Ratios[c.Mode][key] })
}

func intervalRow(of func(InMode) Interval) Row {
	return Row{Name: "  95 % interval", Text: func(c InMode) string { return intervalCell(of(c), c.Mode) }}
}

// LatencyCell prints a percentile in ms, and its change relative to mode exclusive.
func LatencyCell(key string, median func(ModeResult) Number) func(InMode) string {
	return func(c InMode) string {
		return relativeCell(Scaled(median(c.of()), 1e-3, 3), c.Result.Ratios[c.Mode][key], c.Mode)
	}
}

// relativeCell prints "0.548 (+2.8 %)".
func relativeCell(absolute string, i Interval, m Mode) string {
	if m == Exclusive || i.Blocks == 0 || absolute == Unknown {
		return absolute
	}
	return fmt.Sprintf("%s (%s)", absolute, Change(i.Value))
}

// intervalCell prints the 95 % interval of a change relative to mode exclusive.
func intervalCell(i Interval, m Mode) string {
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

// endingTitle returns the title above the last sentences.
func endingTitle(e Experiment) string {
	text := "In short"
	if slices.Contains(e.Modes, Tenon) {
		text += ", compared with Tenon"
	}
	text += " (95 % intervals in brackets)"
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
		return Row{Name: label, Unit: unit, Text: func(c InMode) string {
			if w := c.of().WithStalls; w != nil {
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
