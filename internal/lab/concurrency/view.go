package concurrency

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

//go:embed page.html.tmpl
var pageText string

func headline(r Result) string {
	size := "of unknown size"
	if n := r.Experiment.Node; n.CPUs > 0 {
		size = "of " + textlayout.Plural(n.CPUs, "CPU", "CPUs")
		if n.Cores > 0 && n.Cores != n.CPUs {
			size += fmt.Sprintf(" (%s)", textlayout.Plural(n.Cores, "core", "cores"))
		}
	}
	names := strings.Join(r.Experiment.Nodes, ", ")
	where := "a node " + size
	switch n := len(r.Experiment.Nodes); {
	case n == 1:
		where += fmt.Sprintf(" of a cluster (%s)", names)
	case n > 1:
		where = fmt.Sprintf("%d nodes of a cluster (%s), each %s", n, names, size)
	}
	least, most := runsOf(r)
	runs := textlayout.Plural(most, "run", "runs")
	if least < most {
		runs = fmt.Sprintf("%d to %s", least, runs)
	}
	return fmt.Sprintf("%s on %s, %s a cell.", textlayout.Plural(r.Jobs, "job", "jobs"), where, runs)
}

// explanation names the variable that explains the CPU time of a job.
func explanation(r Result) string {
	if len(r.Causes) == 0 {
		return "The CPU time of the jobs is not known, so nothing explains it."
	}
	c := r.Causes[0]
	if r.Named == "" || !c.Adjusted.Known() {
		return "No variable explains the CPU time of a job clearly better than the others."
	}
	text := fmt.Sprintf("The variable that explains most of the differences in the CPU time of a job is: %s, %s %% (R², adjusted)", c.Variable, report.Scaled(c.Adjusted, 100, 1))
	if len(r.Causes) > 1 && r.Causes[1].Adjusted.Known() {
		return fmt.Sprintf("%s; the next is: %s, %s %%.", text, r.Causes[1].Variable, report.Scaled(r.Causes[1].Adjusted, 100, 1))
	}
	return text + "; no other variable varied enough to be judged."
}

// collapse describes the largest decrease of the CPU time when the load of the
// node grows.
func collapse(r Result) string {
	if len(r.Causes) == 0 {
		return ""
	}
	if r.Cliff == nil {
		return fmt.Sprintf("The CPU time of a job falls by less than %.0f %% at any load of the node.", 100*cliffMargin)
	}
	return fmt.Sprintf("Between %s and %s CPUs asked for on a node the CPU time of a job falls from %s to %s s, a factor of %.2f.",
		report.FormatNumber(r.Cliff.Before, 1), report.FormatNumber(r.Cliff.After, 1), costText(float64(r.Cliff.High)), costText(float64(r.Cliff.Low)), r.Cliff.High/r.Cliff.Low)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

var columns = []struct {
	name  string
	width int
	cell  func(Option) string
}{
	{"how", 20, func(o Option) string { return name(o.cell()) }},
	{"limit", 7, func(o Option) string { return limitOrRequest(o.Limit, o.Request) }},
	{"jobs", 6, func(o Option) string { return strconv.Itoa(o.Asked) }},
	{"s a job", 10, func(o Option) string { return figure(o.Seconds.Estimate) }},
	{"penalty", 9, func(o Option) string {
		if o.Penalty == 0 {
			return report.Unknown
		}
		return report.FormatNumber(o.Penalty, 2)
	}},
	{"jobs/h", 9, func(o Option) string { return figure(o.Hourly.Estimate) }},
	{"CPU-s", 9, func(o Option) string { return costText(float64(o.CPUSeconds)) }},
	{"memory", 10, func(o Option) string { return memoryText(o.Memory) }},
}

// limitOrRequest prints a limit, or the request of jobs whose CPU is no limit.
func limitOrRequest(limit, request unit.MilliCPU) string {
	if request > 0 {
		return "req " + limitText(request)
	}
	return limitText(limit)
}

func limitText(m unit.MilliCPU) string {
	if m == 0 {
		return "none"
	}
	return strconv.FormatFloat(m.Cores(), 'g', -1, 64)
}

func memoryText(b unit.Bytes) string {
	if b == 0 {
		return report.Unknown
	}
	for _, s := range []struct {
		suffix string
		scale  float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		switch v := float64(b) / s.scale; {
		case v >= 1000:
			return strconv.FormatFloat(v, 'f', 0, 64) + " " + s.suffix
		case v >= 0.1:
			return strconv.FormatFloat(v, 'g', 3, 64) + " " + s.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// costText prints CPU seconds. Small numbers get two digits after the point.
func costText(v float64) string {
	if math.IsNaN(v) {
		return report.Unknown
	}
	if v < 20 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

const legend = "limit: req is what a job requested, of jobs whose limit is none or not known; penalty: the duration relative to that of a job alone with the same limit or request, within blocks if the jobs have them; jobs/h: of one node; CPU-s: CPU time of a job."

// writeTable prints the result for a terminal of 100 columns.
func writeTable(w io.Writer, r Result) error {
	var b bytes.Buffer
	textlayout.Paragraph(&b, "", headline(r))
	textlayout.Paragraph(&b, "", explanation(r))
	for _, text := range []string{collapse(r), memoryLine(r), controlText(r)} {
		if text != "" {
			textlayout.Paragraph(&b, "", text)
		}
	}
	b.WriteByte('\n')
	for _, line := range answers(r) {
		textlayout.Paragraph(&b, "", line)
	}
	if len(r.Options) > 0 {
		b.WriteByte('\n')
	}
	for _, c := range columns {
		fmt.Fprintf(&b, "%*s", c.width, c.name)
	}
	b.WriteByte('\n')
	for _, o := range r.Options {
		for _, c := range columns {
			fmt.Fprintf(&b, " %*s", c.width-1, c.cell(o)) // a long cell still has a blank before it
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	textlayout.Paragraph(&b, "", legend)
	writeShares(&b, r)
	if len(r.Comparisons) > 0 {
		b.WriteString("\nOne way beside another, same limit and jobs on a node (time of a job; CPU time)\n")
		for _, c := range r.Comparisons {
			fmt.Fprintf(&b, "  %s / %s, limit %s, %s: %s; %s\n", c.Of, c.To, limitOrRequest(c.Limit, c.Request), textlayout.Plural(c.Jobs, "job", "jobs"), ratioText(c.Seconds, c.SecondsSpan), ratioText(c.CPU, c.CPUSpan))
		}
	}
	if len(r.Hypotheses) > 0 {
		b.WriteString("\nWhy a job may cost more under some conditions\n")
		for _, h := range r.Hypotheses {
			textlayout.Paragraph(&b, "  ", fmt.Sprintf("%s: %s. %s", h.Cause, h.Verdict, h.Figure))
		}
	}
	textlayout.List(&b, "Void jobs", voidLines(r.Void))
	textlayout.List(&b, "Warnings", r.Warnings)
	textlayout.List(&b, "Left out", r.Experiment.Refused)
	textlayout.List(&b, "Caveats", r.Experiment.Caveats)
	_, err := b.WriteTo(w)
	return err
}

// voidLines returns one line for each cell, host and reason. A disturbance of a
// run makes all jobs of the run void, so that one line per job would repeat the
// reason.
func voidLines(all []VoidJob) []string {
	var order []VoidJob // without the index
	count := map[VoidJob]int{}
	for _, v := range all {
		v.Index = 0
		if count[v] == 0 {
			order = append(order, v)
		}
		count[v]++
	}
	var lines []string
	for _, v := range order {
		lines = append(lines, fmt.Sprintf("%s of %s on %s: %s", textlayout.Plural(count[v], "job", "jobs"), v.Cell, v.Host, v.Reason))
	}
	return lines
}

// A page is the data of the report's template.
type page struct {
	Result      Result
	Headline    string
	Explanation string
	Collapse    string
	Memory      string
	Legend      string
	Columns     []string
	Rows        [][]string
	Plots       []report.Plot
	Control     string
	Answers     []string
	Void        []string
	Shares      [][]string
	ShareHeads  []string
	ShareLegend string
}

// writePage writes the result as one HTML page that needs no other file.
func writePage(w io.Writer, r Result) error {
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"style": report.Style,
		"join":  strings.Join,
		"when":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
		"share": func(n report.Number) string { return report.Scaled(n, 100, 1) },
		"limit": limitOrRequest,
		"ratio": ratioText,
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	p := page{Result: r, Headline: headline(r), Explanation: explanation(r), Collapse: collapse(r), Memory: memoryLine(r), Legend: legend, Plots: plots(r),
		Control: controlText(r), Answers: answers(r), Void: voidLines(r.Void), Shares: shareRows(r), ShareHeads: shareHeads, ShareLegend: shareLegend}
	for _, c := range columns {
		p.Columns = append(p.Columns, c.name)
	}
	for _, o := range r.Options {
		var row []string
		for _, c := range columns {
			row = append(row, c.cell(o))
		}
		p.Rows = append(p.Rows, row)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}
