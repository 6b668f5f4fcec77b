package reaction

import (
	_ "embed"
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

//go:embed method.html.tmpl
var method string

var rows = []page.Column[Figure]{
	{Name: "steps (void)", Text: func(f Figure) string { return fmt.Sprintf("%d (%d)", f.Steps, f.Void) }},
	{Name: "BE quota before", Text: func(f Figure) string { return report.FormatNumber(f.QuotaP50, 0) }},
	{Name: "step → event", Text: func(f Figure) string { return f.StepToEvent.cell() }},
	{Name: "event → write", Text: func(f Figure) string { return f.EventToWrite.cell() }},
	{Name: "  p99, 95 %", Text: func(f Figure) string { return f.EventToWrite.tail() }},
	{Name: "  of steps", Text: func(f Figure) string { return fmt.Sprint(f.WithTick) }},
	{Name: "event→narrowed", Text: func(f Figure) string { return f.EventToNarrowed.cell() }},
	{Name: "  p99, 95 %", Text: func(f Figure) string { return f.EventToNarrowed.tail() }},
	{Name: "  of steps", Text: func(f Figure) string { return fmt.Sprint(f.EventToNarrowed.Steps) }},
	{Name: "step → narrowed", Text: func(f Figure) string { return f.StepToNarrowed.cell() }},
	{Name: "  of steps", Text: func(f Figure) string { return fmt.Sprint(f.Narrowed) }},
	{Name: "delay raised", Text: func(f Figure) string { return f.Raised.cell() }},
	{Name: "  p50, 95 %", Text: func(f Figure) string { return millis(f.Raised.P50.Low) + " … " + millis(f.Raised.P50.High) }},
	{Name: "  mean", Text: func(f Figure) string { return millis(f.RaisedMean) }},
	{Name: "late cycles", Text: func(f Figure) string { return report.Scaled(f.Late, 100, 2) + " %" }},
	{Name: "cycle delay", Text: func(f Figure) string { return millis(f.DelayP50) + " / " + millis(f.DelayP99) }},
}

// millis prints a time in ms. An event that did not happen is printed as ∞.
func millis[F ~float64](v F) string {
	switch {
	case math.IsInf(float64(v), 1):
		return "∞"
	case v >= 100:
		return report.FormatNumber(v, 0)
	case v >= 10:
		return report.FormatNumber(v, 1)
	}
	return report.FormatNumber(v, 2)
}

// cell prints p50 and p99 as "1.20 / 4.80".
func (s Spread) cell() string {
	if s.Steps == 0 {
		return report.Unknown
	}
	return millis(s.P50.Value) + " / " + millis(s.P99.Value)
}

func (s Spread) tail() string {
	if s.Steps == 0 {
		return ""
	}
	return millis(s.P99.Low) + " … " + millis(s.P99.High)
}

const legend = "Times in ms, p50 / p99 over steps; ∞: not in the step, or no bound from so few steps. step → event: until tenond learned of one of the kernel's signals; event → write: from then to the last write of the first turn that answers; " +
	"event → narrowed: from the first event of the step until the bound of the batch work was smaller; step → narrowed: the same from the step on; delay raised: until the service's cycles were done in time again (a cycle is late by 2 ms or more). " +
	"BE quota: what the batch work might use when the step began, in thousandths of a CPU. Intervals of percentiles are binomial and take the steps as independent; those of a block are not, so claims count blocks."

func headline(r Result) string {
	e := r.Experiment
	blocks := textlayout.Plural(e.Blocks, "block", "blocks")
	if r.Blocks != e.Blocks {
		blocks = fmt.Sprintf("%d of %s", r.Blocks, blocks)
	}
	return fmt.Sprintf("Steps of load, %v of work in every %v on each of the CPUs %v, beside spinners of equal weight under CPU suppress at %d %% of the node; tenond on CPU %v, period 1 s; %s.",
		e.CycleWork, e.CyclePeriod, e.TestedCPUs, e.Threshold, e.ClientCPUs, blocks)
}

// Page returns what the experiment shows.
func (r Result) Page() page.Page {
	p := r.Experiment.Page("How soon tenond answers a step of load", "steps.jsonl with a line for each step")
	p.Lead, p.Warnings = []string{headline(r)}, r.Warnings
	var figures []Figure
	apart, used := map[report.Mode]modeSteps{}, map[report.Mode][]Step{}
	for _, m := range r.Order {
		figures = append(figures, r.Modes[m])
		used[m], _ = usedSteps(r.steps, m)
		apart[m] = takeApart(used[m])
	}
	table := page.Across(rows, report.Heads(r.Order, nil), figures)
	table.Label, table.Cell = report.LabelWidth, report.CellWidth
	p.Sections = []page.Section{
		{Title: "By mode", Table: table, Legend: legend},
		{Title: "Claims", Claims: report.ShownClaims(r.Claims)},
		{Title: "Pictures", On: page.OnlyHTML, Key: report.Key(r.Order), Plots: plots(r.Order, used, apart)},
		{Title: "Method", On: page.OnlyHTML, Body: page.Render(method, nil, r.Experiment)},
	}
	return p
}

func plots(order []report.Mode, used map[report.Mode][]Step, apart map[report.Mode]modeSteps) []page.Plot {
	var all []page.Plot
	for _, m := range order {
		if finite := slices.DeleteFunc(slices.Clone(apart[m].yielded), func(v float64) bool { return math.IsInf(v, 1) }); len(finite) > 0 {
			all = append(all, page.Plot{
				Title: fmt.Sprintf("Event to narrowed, mode %s", m), Text: "From the first of the kernel's signals in a step, in user space, to the end of the turn that made the bound of the batch work smaller; a bar counts steps. The dashed line is the requirement.",
				Picture: drawHistogram(m, finite),
			})
		}
		if len(apart[m].answers) > 0 {
			all = append(all, page.Plot{
				Title: fmt.Sprintf("Event to last write, mode %s", m), Text: "From one of the kernel's signals in user space to the last write of the turn that answers it; a bar counts steps. The dashed line is the requirement.",
				Picture: drawHistogram(m, apart[m].answers),
			})
		}
	}
	all = append(all,
		page.Plot{Title: "How long the delay stayed raised", Text: "The share of steps in which the service was done in time again after so long.",
			Picture: drawShares(order, func(m report.Mode) []float64 { return apart[m].raised })},
		page.Plot{Title: "Delay along a step", Text: "The mean over steps of how late the cycles were that were due at this time after the step began.",
			Picture: drawShareOverTime(order, used)})
	return slices.DeleteFunc(all, func(p page.Plot) bool { return p.Picture == "" })
}
