package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/stat"
)

// rungNames are the heads of the columns: the words of the published table, and
// the rungs that stand for its experiment.
var rungNames = map[Mode]string{
	Exclusive: "baseline", ExclusiveWarm: "baseline, awake", Default: "control", Burstable: "BE with requests",
	TenonWeight: "least weight", TenonIdle: "cpu.idle", TenonSiblings: "siblings",
	TenonCoreSched: "core scheduling", TenonSCX: "sched_ext", TenonVendor: "vendor kernel",
}

// ladderView is how the kernel-qos experiment is shown: in as many tables as
// the width needs, the stronger rungs later.
func ladderView(e Experiment) view {
	v := view{title: "Kernel CPU QoS: a service beside batch work, rung by rung", rows: ladderRows, names: rungNames}
	in := func(modes ...Mode) []Mode {
		return slices.DeleteFunc(modes, func(m Mode) bool { return !slices.Contains(e.Modes, m) })
	}
	const columns = (tableWidth - labelWidth) / cellWidth
	table, rungs := section{"Baseline, control, experiment", in(Exclusive, ExclusiveWarm, Default, Burstable)}, in(slices.Clone(RungModes)...)
	for {
		n := min(columns-len(table.modes), len(rungs))
		table.modes = append(table.modes, rungs[:n]...)
		v.tables = append(v.tables, table)
		if rungs = rungs[n:]; len(rungs) == 0 {
			return v
		}
		table = section{"The same with the stronger rungs", in(Exclusive, Default)}
	}
}

var ladderRows = slices.Concat(
	[]row{{"mode", "", func(_ Result, m Mode) string { return string(m) }}},
	ladderLatency("RT-P50", "p50", func(m ModeResult) Number { return m.P50 }),
	ladderLatency("RT-P75", "p75", func(m ModeResult) Number { return m.P75 }),
	ladderLatency("RT-P90", "p90", func(m ModeResult) Number { return m.P90 }),
	ladderLatency("RT-P99", "p99", func(m ModeResult) Number { return m.P99 }),
	rowsNamed(rows, "CPU %", "BE frames/s", "run-queue delay"),
	[]row{
		{"  95 % interval", "", func(r Result, m Mode) string { return intervalCell(r.RunDelay[m].ToExclusive, m) }},
		{"wake-up P90", "µs", tracedCell(func(r Result, t TracedResult) string { return number(t.WakeP90, 1) })},
		{"BE beside LS", "", tracedCell(besideCell)},
	})

func ladderLatency(label, key string, median func(ModeResult) Number) []row {
	return []row{
		{label, "ms", latencyCell(key, median)},
		{"  95 % interval", "", func(r Result, m Mode) string { return intervalCell(r.Ratios[m][key], m) }},
	}
}

func rowsNamed(all []row, labels ...string) []row {
	var some []row
	for _, label := range labels {
		some = append(some, all[slices.IndexFunc(all, func(r row) bool { return r.label == label })])
	}
	return some
}

func tracedCell(text func(Result, TracedResult) string) func(Result, Mode) string {
	return func(r Result, m Mode) string {
		if t := r.Modes[m].Traced; t != nil {
			return text(r, *t)
		}
		return unknown
	}
}

// besideCell prints the share of the service's CPU time with BE on the same
// core.
func besideCell(r Result, t TracedResult) string {
	if !r.Experiment.Siblings {
		return "no siblings"
	}
	return scaled(t.Beside, 100, 2) + " %"
}

func ladderLegend(r Result) string {
	text := latencyLegend(r.Experiment) + ", median over blocks; in brackets and below: change to the baseline with its 95 % interval, " +
		"as the geometric mean of the ratios within blocks (not the quotient of the cells). BE frames/s: with the share of what the CPU left idle by the baseline would give. Run-queue delay in µs: the service's mean wait for a CPU per timeslice. " +
		"Wake-up P90 in µs: from being woken to running, from the kernel's record of its scheduler. "
	if !r.Experiment.Siblings {
		return text + "BE beside LS: the tested CPUs share no core, so nothing can run beside the service."
	}
	return text + "BE beside LS: the share of the service's CPU time in which batch work ran on the same core, from the same record."
}

func ladderHeadline(r Result) string {
	e := r.Experiment
	return fmt.Sprintf("nginx on %s %s, %.0f requests/s offered (%.0f %% of capacity): alone (baseline), beside ffmpeg as a BestEffort pod with the shares of kubelet (control), and with Tenon on one rung of the ladder at a time; ffmpeg, %s of %s; %s, %s a run, %s.",
		cpuWord(e), e.TestedCPUs, e.OfferedRate, e.LoadPercent, plural(e.BEProcesses, "process", "processes"), plural(e.BEThreads, "thread", "threads"),
		plural(r.Blocks, "block", "blocks"), e.Duration.Round(time.Second/10), plural(len(r.VoidRuns), "void run", "void runs"))
}

// skippedTexts say which rungs were left out.
func skippedTexts(e Experiment) []string {
	var all []string
	for _, s := range e.Skipped {
		all = append(all, fmt.Sprintf("%s (%s): %s", rungNames[s.Mode], s.Mode, s.Why))
	}
	return all
}

// ladderPlots are two plots of the colocation experiment, the ratio of the
// run-queue delay to the baseline, and what the scheduler recorded.
func ladderPlots(ev evidence, r Result, p99Ratio, p99, delay plot) []plot {
	strips := ev.ratioStrips(r.Order, Exclusive, runDelay)
	ratioEnds := func(e stat.Estimate) string { return ratioEnd(intervalOf(e)) }
	valueEnds := func(format func(float64) string) func(stat.Estimate) string {
		return func(e stat.Estimate) string { return format(e.Value) }
	}
	share := func(v float64) string { return strings.TrimSpace(fmt.Sprintf("%.3g %%", 100*v)) }
	const besideTitle = "Share of the service’s CPU time with batch work on the same core"
	return []plot{
		p99Ratio,
		{
			"Run-queue delay, ratio to exclusive within each block", "The dashed line is “no change”.",
			drawDots(strips, scale{title: "Ratio of run-queue delay to exclusive by block", label: "change of run-queue delay to exclusive", format: byChange, ends: ratioEnds, mark: []float64{1}, hi: 8}),
		},
		p99, delay,
		{
			"Wake-up delay P90 of each block", "From being woken to running, of the service’s threads, from the kernel’s record of its scheduler.",
			drawDots(ev.levelStrips(r.Order, wakeP90), scale{title: "Wake-up delay P90 by block", label: "wake-up delay, P90", format: microseconds, ends: valueEnds(microseconds)}),
		},
		{
			besideTitle, "Runs in which there was none have no dot on this logarithmic axis.",
			drawDots(ev.levelStrips(r.Order, ev.beside()), scale{title: besideTitle, label: "share of the service’s CPU time", format: share, ends: valueEnds(share)}),
		},
	}
}

func tracedFigures() []row {
	return []row{
		{"wake-up P50", "µs", tracedCell(func(_ Result, t TracedResult) string { return number(t.WakeP50, 1) })},
		{"wake-up P90", "µs", tracedCell(func(_ Result, t TracedResult) string { return number(t.WakeP90, 1) })},
		{"wake-up P99", "µs", tracedCell(func(_ Result, t TracedResult) string { return number(t.WakeP99, 1) })},
		{"BE beside LS", "% of LS", tracedCell(func(_ Result, t TracedResult) string { return scaled(t.Beside, 100, 3) })},
		{"BE starts beside LS", "1/s", tracedCell(func(_ Result, t TracedResult) string { return number(t.StartsPerS, 1) })},
	}
}
