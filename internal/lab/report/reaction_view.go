package report

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

	"tenon.sh/tenon/internal/lab/stat"
)

//go:embed reaction.html.tmpl
var reactionText string

type reactionRow struct {
	label string
	cell  func(ReactionFigure) string
}

var reactionRows = []reactionRow{
	{"steps (void)", func(f ReactionFigure) string { return fmt.Sprintf("%d (%d)", f.Steps, f.Void) }},
	{"BE quota before", func(f ReactionFigure) string { return number(f.QuotaP50, 0) }},
	{"step → event", func(f ReactionFigure) string { return f.StepToEvent.cell() }},
	{"event → write", func(f ReactionFigure) string { return f.EventToWrite.cell() }},
	{"  p99, 95 %", func(f ReactionFigure) string { return f.EventToWrite.tail() }},
	{"  of steps", func(f ReactionFigure) string { return fmt.Sprint(f.WithTurn) }},
	{"event→narrowed", func(f ReactionFigure) string { return f.EventToNarrowed.cell() }},
	{"  p99, 95 %", func(f ReactionFigure) string { return f.EventToNarrowed.tail() }},
	{"  of steps", func(f ReactionFigure) string { return fmt.Sprint(f.EventToNarrowed.Steps) }},
	{"step → narrowed", func(f ReactionFigure) string { return f.StepToNarrowed.cell() }},
	{"  of steps", func(f ReactionFigure) string { return fmt.Sprint(f.Narrowed) }},
	{"delay raised", func(f ReactionFigure) string { return f.Raised.cell() }},
	{"  p50, 95 %", func(f ReactionFigure) string { return millis(f.Raised.P50.Low) + " … " + millis(f.Raised.P50.High) }},
	{"  mean", func(f ReactionFigure) string { return millis(f.RaisedMean) }},
	{"late cycles", func(f ReactionFigure) string { return scaled(f.Late, 100, 2) + " %" }},
	{"cycle delay", func(f ReactionFigure) string { return millis(f.DelayP50) + " / " + millis(f.DelayP99) }},
}

// millis prints ms, and ∞ for what did not happen.
func millis(v Number) string {
	switch {
	case math.IsInf(float64(v), 1):
		return "∞"
	case v >= 100:
		return number(v, 0)
	case v >= 10:
		return number(v, 1)
	}
	return number(v, 2)
}

// cell prints "1.20 / 4.80", p50 and p99.
func (s Spread) cell() string {
	if s.Steps == 0 {
		return unknown
	}
	return millis(s.P50.Estimate) + " / " + millis(s.P99.Estimate)
}

func (s Spread) tail() string {
	if s.Steps == 0 {
		return ""
	}
	return millis(s.P99.Low) + " … " + millis(s.P99.High)
}

const reactionLegend = "Times in ms, p50 / p99 over steps; ∞: not in the step, or no bound from so few steps. step → event: until tenond learned of one of the kernel's signals; event → write: from then to the last write of the first turn that answers; " +
	"event → narrowed: from the first event of the step until the bound of the batch work was smaller; step → narrowed: the same from the step on; delay raised: until the service's cycles were done in time again (a cycle is late by 2 ms or more). " +
	"BE quota: what the batch work might use when the step began, in thousandths of a CPU. Intervals of percentiles are binomial, without an assumption on the distribution."

func reactionHeadline(r ReactionResult) string {
	e := r.Experiment
	return fmt.Sprintf("Steps of load, %v of work in every %v on each of the CPUs %v, beside spinners of equal weight under CPU suppress at %d %% of the node; tenond on CPU %v, period 1 s; %s.",
		e.CycleWork, e.CyclePeriod, e.TestedCPUs, e.Threshold, e.ClientCPUs, plural(e.Blocks, "block", "blocks"))
}

// WriteReactionTable prints the result for a terminal.
func WriteReactionTable(w io.Writer, r ReactionResult) error {
	var b bytes.Buffer
	writeParagraph(&b, "", reactionHeadline(r))
	b.WriteByte('\n')
	line(&b, "", r.Order, func(m Mode) string { return string(m) })
	b.WriteString(strings.Repeat("-", labelWidth+cellWidth*len(r.Order)) + "\n")
	for _, row := range reactionRows {
		line(&b, row.label, r.Order, func(m Mode) string { return row.cell(r.Modes[m]) })
	}
	b.WriteByte('\n')
	writeParagraph(&b, "", reactionLegend)
	if len(r.Claims) > 0 {
		b.WriteString("\nClaims\n")
	}
	for _, c := range r.Claims {
		writeParagraph(&b, fmt.Sprintf("%-11s", strings.ToUpper(string(c.Verdict))), c.Statement+".")
		writeParagraph(&b, strings.Repeat(" ", 11), c.Explanation)
	}
	list(&b, "Warnings", r.Warnings)
	list(&b, "Caveats", r.Experiment.Caveats)
	_, err := b.WriteTo(w)
	return err
}

// A reactionPage is what the template of the report shows.
type reactionPage struct {
	Result   ReactionResult
	Headline string
	Legend   string
	Modes    []Mode
	Rows     []pageRow
	Plots    []plot
}

// WriteReactionHTML writes the result as one HTML page that needs nothing
// else.
func WriteReactionHTML(w io.Writer, r ReactionResult, steps []Step) error {
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"style":  style,
		"colour": func(m Mode) template.CSS { return template.CSS(colour(m)) },
		"class":  func(v stat.Verdict) string { return strings.ReplaceAll(string(v), " ", "-") },
		"join":   strings.Join,
		"gib":    func(b int64) string { return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30)) },
		"when":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	}).Parse(reactionText)
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	p := reactionPage{Result: r, Headline: reactionHeadline(r), Legend: reactionLegend, Modes: r.Order}
	for _, row := range reactionRows {
		q := pageRow{Label: strings.TrimSpace(row.label), Minor: strings.HasPrefix(row.label, " ")}
		for _, m := range r.Order {
			q.Cells = append(q.Cells, row.cell(r.Modes[m]))
		}
		p.Rows = append(p.Rows, q)
	}
	apart, used := map[Mode]modeSteps{}, map[Mode][]Step{}
	for _, m := range r.Order {
		used[m], _ = usedSteps(steps, m)
		apart[m] = takeApart(used[m])
	}
	p.Plots = reactionPlots(r.Order, used, apart)
	var b bytes.Buffer
	if err := tmpl.Execute(&b, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}

func reactionPlots(order []Mode, used map[Mode][]Step, apart map[Mode]modeSteps) []plot {
	var all []plot
	for _, m := range order {
		if finite := slices.DeleteFunc(slices.Clone(apart[m].yielded), func(v float64) bool { return math.IsInf(v, 1) }); len(finite) > 0 {
			all = append(all, plot{
				fmt.Sprintf("Event to narrowed, mode %s", m), "From the first of the kernel's signals in a step, in user space, to the end of the turn that made the bound of the batch work smaller; a bar counts steps. The dashed line is the requirement.",
				drawHistogram(m, finite),
			})
		}
		if len(apart[m].answers) > 0 {
			all = append(all, plot{
				fmt.Sprintf("Event to last write, mode %s", m), "From one of the kernel's signals in user space to the last write of the turn that answers it; a bar counts steps. The dashed line is the requirement.",
				drawHistogram(m, apart[m].answers),
			})
		}
	}
	all = append(all,
		plot{"How long the delay stayed raised", "The share of steps in which the service was done in time again after so long.",
			drawShares(order, func(m Mode) []float64 { return apart[m].raised })},
		plot{"Delay along a step", "The mean over steps of how late the cycles were that were due at this time after the step began.",
			drawCourse(order, used)})
	return slices.DeleteFunc(all, func(p plot) bool { return p.Picture == "" })
}
