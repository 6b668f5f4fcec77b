package colocation

import (
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

//go:embed method.html.tmpl
var method string

// study defines how the colocation experiment is judged and shown.
func (c fullExperiment) study() report.Study {
	s := report.Study{
		Title: "What colocation cost and won", Headline: c.headline, Legend: c.legend,
		Tables: tablesOf(c.experiment), Rows: c.rows(), LeftOut: c.skippedTexts(), Figures: c.figures,
		Claims: func(ev report.Evidence) []report.Claim {
			return append(claims(ev), mechanismClaims(ev)...)
		},
		Setup: c.setup(), Method: template.HTML(method), Ending: ending,
	}
	if c.experiment.Kubernetes != nil {
		s.Rows = append(c.rows(), report.Row{Name: "node's CPUs", Text: func(c report.InMode) string {
			return nodeUse(c.Result.Modes[c.Mode].NodeMetricsCPU, c.Result.Experiment.Machine.CPUs)
		}})
	}
	if c.experiment.BatchPods > 0 {
		s.Title, s.Rows = "What the accounting of batch pods costs and gains", append(c.batchPodRows(), s.Rows...)
		s.Claims, s.Plots, s.Ending = batchPodClaims, c.batchPodPlots, c.batchPodEnding
	}
	return s
}

// nodeUse prints the CPUs that a node used, and their share of the node.
func nodeUse(used report.Number, cpus int) string {
	text := report.FormatNumber(used, 2)
	if used.Known() && cpus > 0 {
		text += fmt.Sprintf(" (%.0f %%)", 100*float64(used)/float64(cpus))
	}
	return text
}

// setup says what the batch work was, unless the user brought it.
func (c fullExperiment) setup() []page.Fact {
	if e := c.experiment; e.Own == nil {
		return []page.Fact{{Name: "batch work", Text: fmt.Sprintf("%d × %d threads, %s; alone %.1f frames/s with %.1f CPUs", e.BEProcesses, e.BEThreads, e.Input, e.SoloFramesPerSecond, e.SoloCPU)}}
	}
	return nil
}

// The two tables of the published experiment. Latencies of modes can be
// compared only if the CPU use is equal.
var tables = []report.Section{
	{Title: "At equal utilisation", Modes: []report.Mode{report.Exclusive, report.Default65, report.Tenon65, report.SLOAware, report.SLOAwareQuota}},
	{Title: "At full utilisation", Modes: []report.Mode{report.Exclusive, report.ExclusiveWarm, report.ExclusiveAwake, report.Default, report.Burstable, report.TenonNoSlices, report.Tenon}},
}

// tablesOf returns the usual tables, and one table for each family of optional
// modes that ran.
func tablesOf(e Experiment) []report.Section {
	of := slices.Clone(tables)
	if e.BatchPods > 0 {
		of[1].Title = "What the scheduler counts, and how the service answers"
	}
	if !slices.Contains(e.Modes, report.Default65) {
		of[0].Title = "With CPU suppress" // no mode was paced to its use
	}
	run := func(modes []report.Mode) []report.Mode {
		return slices.DeleteFunc(slices.Clone(modes), func(m report.Mode) bool { return !slices.Contains(e.Modes, m) })
	}
	if sessions := run(report.SessionModes); len(sessions) > 0 {
		of = append(of, report.Section{Title: "Without cgroups", Modes: append(append([]report.Mode{report.Exclusive}, sessions...), report.Tenon)})
	}
	if mechanisms := run(report.MechanismModes); len(mechanisms) > 0 {
		of = append(of, report.Section{Title: "One isolation mechanism at a time", Modes: append([]report.Mode{report.Exclusive, report.Default}, mechanisms...)})
	}
	return of
}

// legend explains the table.
func (c fullExperiment) legend(r report.Result) string {
	nodes := ""
	if c.experiment.Kubernetes != nil {
		nodes = " Node's CPUs: those in use, and their share of all CPUs of the node, by the metrics API of the cluster in a window of it that lies in the run, or else by the kubelet's counter from which that API has its figures; they include CPUs that are not tested."
		if !slices.ContainsFunc(slices.Collect(maps.Values(r.Modes)), func(m report.ModeResult) bool { return m.NodeMetricsCPU.Known() }) {
			nodes += fmt.Sprintf(" None is known: neither a window of the metrics API nor two readings of the kubelet, which are ten seconds to a minute apart, lie in a run of %v.", r.Experiment.Duration)
		}
	}
	goodput := "for BE frames/s: share of what the CPU left idle by exclusive would give at the solo rate."
	if c.experiment.Own != nil {
		goodput = "BE % of alone: the work of the batch commands as a share of what they do on the tested CPUs without the service, mean over the commands."
	}
	pods := ""
	if c.experiment.BatchPods > 0 {
		pods = batchPodLegend
	}
	return report.LatencyLegend(r.Experiment) + ", median over blocks; run-queue delay in µs, the service's mean wait for a CPU per timeslice; waiting in ms per second, the same for all timeslices together. " +
		"In brackets: change to exclusive, as the geometric mean of the ratios within blocks (not the quotient of the cells); " +
		goodput + nodes + pods
}

// headline describes the experiment in one sentence.
func (c fullExperiment) headline(r report.Result) string {
	e := r.Experiment
	cpus := report.CPUWord(e)
	service, batch := c.workload()
	text := fmt.Sprintf("%s on %s %s, %.0f requests/s offered", service, cpus, e.TestedCPUs, e.OfferedRate)
	if e.LoadPercent > 0 {
		text += fmt.Sprintf(" (%.0f %% of capacity)", e.LoadPercent)
	}
	if e.Client == "command" {
		text = fmt.Sprintf("%s on %s %s, load by a command", service, cpus, e.TestedCPUs)
	}
	if e.Client == "wrk" {
		text = fmt.Sprintf("nginx on %s %s, closed loop (wrk)", cpus, e.TestedCPUs)
	}
	if c.experiment.Own != nil {
		return text + fmt.Sprintf("; %s; %s, %s a run, %s.", batch, textlayout.Plural(r.Blocks, "block", "blocks"), e.Duration.Round(time.Second/10), textlayout.Plural(len(r.VoidRuns), "void run", "void runs"))
	}
	of := fmt.Sprintf("ffmpeg, %s of %s", textlayout.Plural(e.BEProcesses, "process", "processes"), textlayout.Plural(e.BEThreads, "thread", "threads"))
	if n := c.experiment.BatchPods; n > 0 {
		of = textlayout.Plural(n, "batch pod", "batch pods") + ", each with " + of
	}
	return text + fmt.Sprintf("; %s; %s, %s a run, %s.", of, textlayout.Plural(r.Blocks, "block", "blocks"), e.Duration.Round(time.Second/10), textlayout.Plural(len(r.VoidRuns), "void run", "void runs"))
}
