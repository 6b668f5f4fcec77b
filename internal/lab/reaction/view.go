package reaction

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

//go:embed page.html.tmpl
var pageText string

type row struct {
	label string
	cell  func(Figure) string
}

var rows = []row{
	{"steps (void)", func(f Figure) string { return fmt.Sprintf("%d (%d)", f.Steps, f.Void) }},
	{"BE quota before", func(f Figure) string { return report.FormatNumber(f.QuotaP50, 0) }},
	{"step → event", func(f Figure) string { return f.StepToEvent.cell() }},
	{"event → write", func(f Figure) string { return f.EventToWrite.cell() }},
	{"  p99, 95 %", func(f Figure) string { return f.EventToWrite.tail() }},
	{"  of steps", func(f Figure) string { return fmt.Sprint(f.WithTick) }},
	{"event→narrowed", func(f Figure) string { return f.EventToNarrowed.cell() }},
	{"  p99, 95 %", func(f Figure) string { return f.EventToNarrowed.tail() }},
	{"  of steps", func(f Figure) string { return fmt.Sprint(f.EventToNarrowed.Steps) }},
	{"step → narrowed", func(f Figure) string { return f.StepToNarrowed.cell() }},
	{"  of steps", func(f Figure) string { return fmt.Sprint(f.Narrowed) }},
	{"delay raised", func(f Figure) string { return f.Raised.cell() }},
	{"  p50, 95 %", func(f Figure) string { return millis(f.Raised.P50.Low) + " … " + millis(f.Raised.P50.High) }},
	{"  mean", func(f Figure) string { return millis(f.RaisedMean) }},
	{"late cycles", func(f Figure) string { return report.Scaled(f.Late, 100, 2) + " %" }},
	{"cycle delay", func(f Figure) string { return millis(f.DelayP50) + " / " + millis(f.DelayP99) }},
}

// millis prints a time in ms. An event that did not happen is printed as ∞.
func millis(v report.Number) string {
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
	return millis(s.P50.Estimate) + " / " + millis(s.P99.Estimate)
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

// writeTable prints the result for a terminal.
func writeTable(w io.Writer, r Result) error {
	var b bytes.Buffer
	textlayout.Paragraph(&b, "", headline(r))
	b.WriteByte('\n')
	report.Line(&b, "", r.Order, func(m report.Mode) string { return string(m) })
	b.WriteString(strings.Repeat("-", report.LabelWidth+report.CellWidth*len(r.Order)) + "\n")
	for _, row := range rows {
		report.Line(&b, row.label, r.Order, func(m report.Mode) string { return row.cell(r.Modes[m]) })
	}
	b.WriteByte('\n')
	textlayout.Paragraph(&b, "", legend)
	report.WriteClaims(&b, r.Claims)
	textlayout.List(&b, "Warnings", r.Warnings)
	textlayout.List(&b, "Caveats", r.Experiment.Caveats)
	_, err := b.WriteTo(w)
	return err
}

// A page is the data of the report's template.
type page struct {
	Result   Result
	Headline string
	Legend   string
	Modes    []report.Mode
	Rows     []report.PageRow
	Plots    []report.Plot
}

// writePage writes the result as one self-contained HTML page.
func writePage(w io.Writer, r Result, steps []Step) error {
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"style":  report.Style,
		"colour": func(m report.Mode) template.CSS { return template.CSS(report.Colour(m)) },
		"class":  func(v stat.Verdict) string { return strings.ReplaceAll(string(v), " ", "-") },
		"join":   strings.Join,
		"gib":    func(b int64) string { return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30)) },
		"when":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	p := page{Result: r, Headline: headline(r), Legend: legend, Modes: r.Order}
	for _, row := range rows {
		q := report.PageRow{Label: strings.TrimSpace(row.label), Minor: strings.HasPrefix(row.label, " ")}
		for _, m := range r.Order {
			q.Cells = append(q.Cells, row.cell(r.Modes[m]))
		}
		p.Rows = append(p.Rows, q)
	}
	apart, used := map[report.Mode]modeSteps{}, map[report.Mode][]Step{}
	for _, m := range r.Order {
		used[m], _ = usedSteps(steps, m)
		apart[m] = takeApart(used[m])
	}
	p.Plots = plots(r.Order, used, apart)
	var b bytes.Buffer
	if err := tmpl.Execute(&b, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}

func plots(order []report.Mode, used map[report.Mode][]Step, apart map[report.Mode]modeSteps) []report.Plot {
	var all []report.Plot
	for _, m := range order {
		if finite := slices.DeleteFunc(slices.Clone(apart[m].yielded), func(v float64) bool { return math.IsInf(v, 1) }); len(finite) > 0 {
			all = append(all, report.Plot{
				Title: fmt.Sprintf("Event to narrowed, mode %s", m), Text: "From the first of the kernel's signals in a step, in user space, to the end of the turn that made the bound of the batch work smaller; a bar counts steps. The dashed line is the requirement.",
				Picture: drawHistogram(m, finite),
			})
		}
		if len(apart[m].answers) > 0 {
			all = append(all, report.Plot{
				Title: fmt.Sprintf("Event to last write, mode %s", m), Text: "From one of the kernel's signals in user space to the last write of the turn that answers it; a bar counts steps. The dashed line is the requirement.",
				Picture: drawHistogram(m, apart[m].answers),
			})
		}
	}
	all = append(all,
		report.Plot{Title: "How long the delay stayed raised", Text: "The share of steps in which the service was done in time again after so long.",
			Picture: drawShares(order, func(m report.Mode) []float64 { return apart[m].raised })},
		report.Plot{Title: "Delay along a step", Text: "The mean over steps of how late the cycles were that were due at this time after the step began.",
			Picture: drawShareOverTime(order, used)})
	return slices.DeleteFunc(all, func(p report.Plot) bool { return p.Picture == "" })
}
