package memory

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/claim"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// A Summary is the result of one mode of the memory experiment. Its values are
// medians over the blocks with a valid run.
type Summary struct {
	Refaults    report.Number `json:"ls_refaults_per_second"`
	MajorFaults report.Number `json:"ls_major_faults_per_second"`
	LSHeld      report.Number `json:"ls_in_memory_ratio"` // of the working set
	Processed   report.Number `json:"be_mib_per_second"`
}

func (m memoryExperiment) summary(ev report.Evidence, mode report.Mode) Summary {
	median := func(of report.Metric) report.Number { return report.Number(stat.Median(ev.Sample(mode, of))) }
	return Summary{
		Refaults: median(m.refaults), MajorFaults: median(m.majorFaults),
		LSHeld: median(m.residentMetric), Processed: median(m.processed),
	}
}

// The thresholds of the claims.
const (
	memoryBetter  = 1.2 // lowest ratio of P99, default to tenond
	fewerRefaults = 1.0 // lowest difference of the refaults per second, default − tenond
	memoryKept    = 0.5 // lowest ratio of the batch work's progress, tenond to default
)

func (m memoryExperiment) claims(ev report.Evidence) []report.Claim {
	if !ev.Asked(report.Default) || !ev.Asked(report.Tenond) {
		return nil
	}
	p99 := report.Percentiles["p99"]
	tail := ev.Ratio(report.Default, report.Tenond, p99)
	back := stat.Difference(ev.Sample(report.Default, m.refaults), ev.Sample(report.Tenond, m.refaults), ev.Rule)
	work := ev.Ratio(report.Tenond, report.Default, m.processed)
	claims := []report.Claim{
		report.Claim{
			Name:        "tenond-better-than-default",
			Statement:   fmt.Sprintf("Without Tenon the service's P99 is at least %s higher than with it", report.Limit(memoryBetter)),
			Numbers:     map[string]report.Interval{"default_to_tenond": tail},
			Explanation: fmt.Sprintf("P99, %s to %s: %s.", report.Default, report.Tenond, report.FormatRatio(tail)),
			About:       []report.Mode{report.Default, report.Tenond}, Favours: []report.Mode{report.Tenond},
		}.With(stat.AtLeast(tail, memoryBetter)),
		report.Claim{
			Name:        "tenond-fewer-refaults",
			Statement:   "With Tenon fewer of the service's pages have to be read back, by one a second or more",
			Numbers:     map[string]report.Interval{"refaults_per_second": back},
			Explanation: fmt.Sprintf("Refaults of the service a second, %s − %s: %s.", report.Default, report.Tenond, report.Quantity(back, 1, "")),
			About:       []report.Mode{report.Default, report.Tenond}, Favours: []report.Mode{report.Tenond},
		}.With(stat.AtLeast(back, fewerRefaults)),
	}
	if ev.Asked(report.Exclusive) {
		statement := fmt.Sprintf("With Tenon the service's P99 is at most %s above that of the service alone", report.Limit(ev.Margin))
		claims = append(claims, claim.AsAlone(ev, report.Tenond, report.P99, statement))
	}
	return append(claims, report.Claim{
		Name:        "batch-goes-on",
		Statement:   fmt.Sprintf("With Tenon the batch work gets through at least %.0f %% of the data that it gets through without", 100*memoryKept),
		Numbers:     map[string]report.Interval{"tenond_to_default": work},
		Explanation: fmt.Sprintf("Bytes gone through, %s to %s: %s.", report.Tenond, report.Default, report.FormatRatio(work)),
		About:       []report.Mode{report.Default, report.Tenond}, Favours: []report.Mode{report.Tenond},
	}.With(stat.AtLeast(work, memoryKept)))
}

//go:embed method.html.tmpl
var method string

// study defines how the experiment is judged and shown.
func (m memoryExperiment) study() report.Study {
	return report.Study{
		Title: "Memory: a service beside a memory hog", Headline: m.headline, Legend: func(report.Result) string { return legend },
		Tables: tables, Rows: m.rows(), Claims: m.claims, Figures: m.figures, Plots: m.plots,
		Gallery: &report.Gallery{
			Title: "Memory over time", Text: "One run of each mode: what each side holds of the memory that both may use.",
			Legend: report.AreaKey("what both may use",
				[2]string{"ls", "pages of the service (LS)"}, [2]string{"be", "page cache of the batch work (BE)"}, [2]string{"anon", "its own memory"}),
			Picture: m.picture,
		},
		Method: page.Render(method, template.FuncMap{"mib": func(b unit.Bytes) string { return fmt.Sprintf("%d MiB", b>>20) }}, m.experiment.Memory),
	}
}

var tables = []report.Section{{Title: "Memory", Modes: []report.Mode{report.Exclusive, report.ExclusiveAA, report.Default, report.Tenond}}}

func (m memoryExperiment) rows() []report.Row {
	return slices.Concat(
		slices.DeleteFunc(slices.Clone(report.LatencyRows), func(r report.Row) bool { return r.Name == "BE frames/s" || r.Name == "RT-P75" || r.Name == "RT-P90" }),
		[]report.Row{
			{Name: "LS refaults/s", Text: m.cell(func(m Summary) string { return report.FormatNumber(m.Refaults, 0) })},
			{Name: "LS majflt/s", Text: m.cell(func(m Summary) string { return report.FormatNumber(m.MajorFaults, 1) })},
			{Name: "LS in memory", Unit: "%", Text: m.cell(func(m Summary) string { return report.Scaled(m.LSHeld, 100, 0) })},
			{Name: "BE MiB/s", Text: m.cell(func(m Summary) string { return report.FormatNumber(m.Processed, 0) })},
		})
}

func (m memoryExperiment) cell(text func(Summary) string) func(report.InMode) string {
	return func(c report.InMode) string {
		if use, ok := m.summaries[c.Mode]; ok {
			return text(use)
		}
		return report.Unknown
	}
}

const legend = "Latency in ms from the intended send time, without the requests that were due while the client's own CPU stood still, median over blocks; " +
	"run-queue delay in µs, the service's mean wait for a CPU per timeslice; refaults: pages of the service that had to be read back. LS in memory: page cache of the service in percent of its pages. " +
	"In brackets: change to exclusive, as the geometric mean of the ratios within blocks (not the quotient of the cells)."

func (m memoryExperiment) headline(r report.Result) string {
	e := m.experiment
	return fmt.Sprintf("nginx with %d MiB of pages, %.0f requests/s at random; a memory hog that wants %d MiB; both may use %d MiB together; cgroup v%d; %s, %s a run, %s.",
		e.Memory.Set>>20, e.OfferedRate, (e.Memory.HogFile+e.Memory.HogHeld)>>20, e.Memory.Parent>>20, e.Machine.CgroupVersion,
		textlayout.Plural(r.Blocks, "block", "blocks"), e.Duration.Round(time.Second/10), textlayout.Plural(len(r.VoidRuns), "void run", "void runs"))
}

// figures returns the common rows and the rows about memory. It leaves out the
// rows about frames.
func (m memoryExperiment) figures(common []report.Row) []report.Row {
	common = slices.DeleteFunc(common, func(r report.Row) bool {
		return strings.HasPrefix(r.Name, "BE frames") || strings.HasPrefix(r.Name, "BE share")
	})
	return append(common, []report.Row{
		{Name: "LS refaults", Unit: "1/s", Text: m.cell(func(m Summary) string { return report.FormatNumber(m.Refaults, 1) })},
		{Name: "LS major faults", Unit: "1/s", Text: m.cell(func(m Summary) string { return report.FormatNumber(m.MajorFaults, 1) })},
		{Name: "LS pages in memory", Unit: "%", Text: m.cell(func(m Summary) string { return report.Scaled(m.LSHeld, 100, 1) })},
		{Name: "BE MiB/s", Text: m.cell(func(m Summary) string { return report.FormatNumber(m.Processed, 1) })},
	}...)
}

// plots returns two plots that the colocation experiment also has, and the
// plots about memory.
func (m memoryExperiment) plots(ev report.Evidence, r report.Result, common report.CommonPlots) []page.Plot {
	ratios := common.P99Ratio
	ratios.Text = fmt.Sprintf("The dashed lines are “no change” and the margin of %s.", report.Limit(r.Experiment.Margin))
	level := func(title, text string, of report.Metric, format func(float64) string) page.Plot {
		return page.Plot{Title: title, Text: text, Picture: chart.Dots(ev.LevelStrips(r.Order, of), chart.Scale{Title: title, Label: title, Format: format})}
	}
	return []page.Plot{
		ratios, common.P99,
		level("Refaults of the service a second, by block", "Modes without a single refault have no dot on this logarithmic axis.", m.refaults, func(v float64) string { return fmt.Sprintf("%.3g", v) }),
		level("MiB/s that the batch work goes through, by block", "", m.processed, func(v float64) string { return fmt.Sprintf("%.4g", v) }),
	}
}

// picture shows the memory of the service and of the batch work in one run. If
// the memory is not known, the picture is empty.
func (m memoryExperiment) picture(used []report.Run) template.HTML {
	e := m.experiment
	i := slices.IndexFunc(used, func(r report.Run) bool { return len(m.uses[r.Index].Readings) > 1 })
	if i < 0 {
		return ""
	}
	course := m.uses[used[i].Index].Readings
	const mib = 1 << 20
	length, most := max(course[len(course)-1].At, time.Millisecond).Seconds(), float64(e.Memory.Parent)/mib
	for _, h := range course {
		most = max(most, float64(h.LS+h.BEFile+h.BEAnon)/mib)
	}
	edge := func(upTo func(Held) float64) []chart.Point {
		points := make([]chart.Point, len(course))
		for i, h := range course {
			points[i] = chart.Point{X: h.At.Seconds(), Y: upTo(h) / mib}
		}
		return points
	}
	parent := float64(e.Memory.Parent) / mib
	return chart.Stack{
		Title: "Memory over time in mode " + string(used[i].Mode), Label: fmt.Sprintf("run %03d, MiB", used[i].Index),
		Length: length, Most: math.Max(most, 1),
		Layers: []chart.Layer{
			{Class: "be", Edge: edge(func(h Held) float64 { return float64(h.LS + h.BEFile + h.BEAnon) })},
			{Class: "anon", Edge: edge(func(h Held) float64 { return float64(h.LS + h.BEAnon) })},
			{Class: "ls", Edge: edge(func(h Held) float64 { return float64(h.LS) })},
		},
		Limit: []chart.Point{{X: 0, Y: parent}, {X: length, Y: parent}},
	}.HTML()
}
