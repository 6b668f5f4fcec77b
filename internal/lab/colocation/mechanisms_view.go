package colocation

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

//go:embed mechanisms.html.tmpl
var kernelQOSMethod string

// kernelQOSStudy defines how the kernel-qos experiment is judged and shown. If
// the mechanisms do not fit into one table, the stronger ones are in further
// tables.
func (c fullExperiment) kernelQOSStudy() report.Study {
	e := c.experiment
	s := report.Study{
		Title: "Kernel CPU QoS: a service beside batch work, one isolation mechanism at a time", Headline: kernelQOSHeadline, Legend: c.kernelQOSLegend,
		Rows: c.kernelQOSRows(), Heads: true, Claims: mechanismClaims, Figures: c.figures, Plots: c.kernelQOSPlots, LeftOut: c.skippedTexts(),
		Setup: c.setup(), Method: page.Render(kernelQOSMethod, nil, e),
	}
	in := func(modes ...report.Mode) []report.Mode {
		return slices.DeleteFunc(modes, func(m report.Mode) bool { return !slices.Contains(e.Modes, m) })
	}
	const columns = (textlayout.Width - report.LabelWidth) / report.CellWidth
	table, mechanisms := report.Section{Title: "Baseline, control, experiment", Modes: in(report.Exclusive, report.ExclusiveWarm, report.ExclusiveAwake, report.Default, report.Burstable)}, in(slices.Clone(report.MechanismModes)...)
	for {
		n := min(columns-len(table.Modes), len(mechanisms))
		table.Modes = append(table.Modes, mechanisms[:n]...)
		s.Tables = append(s.Tables, table)
		if mechanisms = mechanisms[n:]; len(mechanisms) == 0 {
			return s
		}
		table = report.Section{Title: "The same with the stronger mechanisms", Modes: in(report.Exclusive, report.Default)}
	}
}

func (c fullExperiment) kernelQOSRows() []report.Row {
	return slices.Concat(
		[]report.Row{{Name: "mode", Text: func(c report.InMode) string { return string(c.Mode) }}},
		kernelQOSLatency("RT-P50", "p50", func(m report.ModeResult) report.Number { return m.P50 }),
		kernelQOSLatency("RT-P75", "p75", func(m report.ModeResult) report.Number { return m.P75 }),
		kernelQOSLatency("RT-P90", "p90", func(m report.ModeResult) report.Number { return m.P90 }),
		kernelQOSLatency("RT-P99", "p99", func(m report.ModeResult) report.Number { return m.P99 }),
		rowsNamed(report.LatencyRows, "CPU %", "BE frames/s", "run-queue delay"),
		[]report.Row{report.DelayInterval},
		rowsNamed(report.LatencyRows, "waiting"),
		[]report.Row{
			{Name: "wake-up P90", Unit: "µs", Text: c.tracedCell(func(t TracedResult) string { return report.FormatNumber(t.WakeP90, 1) })},
			{Name: "BE beside LS", Text: c.tracedCell(c.sharedCoreCell)},
		})
}

func kernelQOSLatency(label, key string, median func(report.ModeResult) report.Number) []report.Row {
	return []report.Row{{Name: label, Unit: "ms", Text: report.LatencyCell(key, median)}, report.LatencyInterval(key)}
}

func rowsNamed(all []report.Row, labels ...string) []report.Row {
	var some []report.Row
	for _, label := range labels {
		some = append(some, all[slices.IndexFunc(all, func(r report.Row) bool { return r.Name == label })])
	}
	return some
}

func (c fullExperiment) tracedCell(text func(TracedResult) string) func(report.InMode) string {
	return func(in report.InMode) string {
		if t := c.summaries[in.Mode]; t != nil {
			return text(*t)
		}
		return report.Unknown
	}
}

// sharedCoreCell prints the share of the service's CPU time in which BE ran on
// the same core.
func (c fullExperiment) sharedCoreCell(t TracedResult) string {
	if !c.experiment.Siblings {
		return "no siblings"
	}
	return report.Scaled(t.Beside, 100, 2) + " %"
}

func (c fullExperiment) kernelQOSLegend(r report.Result) string {
	text := report.LatencyLegend(r.Experiment) + ", median over blocks; in brackets and below: change to the baseline with its 95 % interval, " +
		"as the geometric mean of the ratios within blocks (not the quotient of the cells). BE frames/s: with the share of what the CPU left idle by the baseline would give. Run-queue delay in µs: the service's mean wait for a CPU per timeslice; waiting in ms per second, the same for all timeslices together. " +
		"Wake-up P90 in µs: from being woken to running, from the kernel's record of its scheduler. "
	if !c.experiment.Siblings {
		return text + "BE beside LS: the tested CPUs share no core, so nothing can run beside the service."
	}
	return text + "BE beside LS: the share of the service's CPU time in which batch work ran on the same core, from the same record."
}

func kernelQOSHeadline(r report.Result) string {
	e := r.Experiment
	return fmt.Sprintf("nginx on %s %s, %.0f requests/s offered (%.0f %% of capacity): alone (baseline), beside ffmpeg as a BestEffort pod with the shares of kubelet (control), and with Tenon on one isolation mechanism at a time; ffmpeg, %s of %s; %s, %s a run, %s.",
		report.CPUWord(e), e.TestedCPUs, e.OfferedRate, e.LoadPercent, textlayout.Plural(e.BEProcesses, "process", "processes"), textlayout.Plural(e.BEThreads, "thread", "threads"),
		textlayout.Plural(r.Blocks, "block", "blocks"), e.Duration.Round(time.Second/10), textlayout.Plural(len(r.VoidRuns), "void run", "void runs"))
}

// skippedTexts lists the mechanisms that the experiment skipped, each with the
// reason.
func (c fullExperiment) skippedTexts() []string {
	var all []string
	for _, s := range c.experiment.Skipped {
		all = append(all, fmt.Sprintf("%s (%s): %s", s.Mode.Spec().Head, s.Mode, s.Why))
	}
	return all
}

// kernelQOSPlots returns three plots of the colocation experiment, a plot of
// the run-queue delay relative to the baseline, and two plots of the
// scheduler's trace.
func (c fullExperiment) kernelQOSPlots(ev report.Evidence, r report.Result, common report.CommonPlots) []page.Plot {
	strips := ev.RatioStrips(r.Order, report.Exclusive, report.RunDelay)
	share := func(v float64) string { return strings.TrimSpace(fmt.Sprintf("%.3g %%", 100*v)) }
	const besideTitle = "Share of the service’s CPU time with batch work on the same core"
	return []page.Plot{
		common.P99Ratio,
		{
			Title: "Run-queue delay, ratio to exclusive within each block", Text: "The dashed line is “no change”.",
			Picture: chart.Dots(strips, chart.Scale{Title: "Ratio of run-queue delay to exclusive by block", Label: "change of run-queue delay to exclusive", Format: report.ByChange, Ends: report.RatioEnd, Mark: []float64{1}, Most: 8}),
		},
		common.P99, common.Delay,
		{
			Title: "Wake-up delay P90 of each block", Text: "From being woken to running, of the service’s threads, from the kernel’s record of its scheduler.",
			Picture: chart.Dots(ev.LevelStrips(r.Order, c.wakeP90()), chart.Scale{Title: "Wake-up delay P90 by block", Label: "wake-up delay, P90", Format: report.Microseconds}),
		},
		{
			Title: besideTitle, Text: "Runs in which there was none have no dot on this logarithmic axis.",
			Picture: chart.Dots(ev.LevelStrips(r.Order, c.sharedCoreMetric()), chart.Scale{Title: besideTitle, Label: "share of the service’s CPU time", Format: share}),
		},
	}
}

// figures adds rows about the scheduler's trace, if there is one.
func (c fullExperiment) figures(common []report.Row) []report.Row {
	if len(c.summaries) == 0 {
		return common
	}
	return append(common, []report.Row{
		{Name: "wake-up P50", Unit: "µs", Text: c.tracedCell(func(t TracedResult) string { return report.FormatNumber(t.WakeP50, 1) })},
		{Name: "wake-up P90", Unit: "µs", Text: c.tracedCell(func(t TracedResult) string { return report.FormatNumber(t.WakeP90, 1) })},
		{Name: "wake-up P99", Unit: "µs", Text: c.tracedCell(func(t TracedResult) string { return report.FormatNumber(t.WakeP99, 1) })},
		{Name: "BE beside LS", Unit: "% of LS", Text: c.tracedCell(func(t TracedResult) string { return report.Scaled(t.Beside, 100, 3) })},
		{Name: "BE starts beside LS", Unit: "1/s", Text: c.tracedCell(func(t TracedResult) string { return report.FormatNumber(t.StartsPerS, 1) })},
	}...)
}
