package concurrency

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

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

// memoryLine returns a sentence about the effect of memory on the time of a job.
func memoryLine(r Result) string {
	m := r.Memory
	if m == nil {
		return ""
	}
	return fmt.Sprintf("Jobs with %s of memory take %s as long as those with %s (%s): %s.", memoryText(m.Most), ratioText(m.Ratio.Value, m.Ratio),
		memoryText(m.Least), textlayout.Plural(m.Conditions, "limit or number of jobs", "limits and numbers of jobs"), m.Verdict)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

var columns = []page.Column[Option]{
	{Name: "how", Text: func(o Option) string { return name(o.cell()) }},
	{Name: "limit", Text: func(o Option) string { return limitOrRequest(o.Limit, o.Request) }},
	{Name: "jobs", Text: func(o Option) string { return strconv.Itoa(o.Asked) }},
	{Name: "s a job", Text: func(o Option) string { return figure(o.Seconds.Value) }},
	{Name: "penalty", Text: func(o Option) string {
		if o.Penalty == 0 {
			return report.Unknown
		}
		return report.FormatNumber(o.Penalty, 2)
	}},
	{Name: "jobs/h", Text: func(o Option) string { return figure(o.Hourly.Value) }},
	{Name: "CPU-s", Text: func(o Option) string { return costText(float64(o.CPUSeconds)) }},
	{Name: "memory", Text: func(o Option) string { return memoryText(o.Memory) }},
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

// Page returns what the experiment shows.
func (r Result) Page() page.Page {
	e := r.Experiment
	p := e.Page("How many jobs fit on a node, and with which CPU limit", "jobs.csv with a row for each job")
	p.Warnings, p.Setup = r.Warnings, append(p.Setup, setup(e)...)
	for _, text := range slices.Concat([]string{headline(r), explanation(r), collapse(r), memoryLine(r), controlText(r)}, answers(r)) {
		if text != "" {
			p.Lead = append(p.Lead, text)
		}
	}
	explained := slices.DeleteFunc(slices.Clone(r.Options), func(o Option) bool { return o.Shares == nil })
	wide := page.Section{Title: "Why a job takes this time", On: page.OnlyHTML, Table: page.Down(shareColumns(true), explained), Legend: shareLegend}
	narrow := wide
	narrow.On, narrow.Table = page.OnlyTerminal, page.Down(shareColumns(false), explained)
	if len(explained) == 0 {
		wide.Legend, narrow.Legend = "", ""
	}
	p.Sections = []page.Section{
		{Title: "All ways that were measured", Table: page.Down(columns, r.Options), Legend: legend, Plots: plots(r)},
		narrow, wide,
		{
			Title: "What explains the CPU time of a job", On: page.OnlyHTML, Table: page.Down(causeColumns, r.Causes),
			Legend: "R² is the share of the variance of the logarithm of the CPU time that lies between the groups of a variable. The adjusted share takes into account that many small groups explain much by chance.",
		},
		{Title: "One way beside another", Table: page.Down(pairColumns, r.Comparisons)},
		{Title: "Why a job may cost more under some conditions", Claims: r.claims()},
	}
	p.Sections = append(p.Sections, r.setupSections()...)
	p.Sections = append(p.Sections,
		page.Section{Title: "Void jobs", Items: voidLines(r.Void)},
		page.Section{Title: "Left out", Items: e.Refused})
	return p
}

// setup says what only this experiment has.
func setup(e Experiment) []page.Fact {
	var facts []page.Fact
	if len(e.Job) > 0 {
		facts = append(facts, page.Fact{Name: "job", Text: strings.Join(e.Job, " "), Code: true})
	}
	if e.Fill != "" {
		facts = append(facts, page.Fact{Name: "filling", Text: fmt.Sprintf("%s, window %v after %v", e.Fill, e.Window, e.Warmup)})
	}
	if len(e.Imported) > 0 {
		facts = append(facts, page.Fact{Name: "imported", Text: strings.Join(e.Imported, ", ")})
	}
	return facts
}

var causeColumns = []page.Column[Cause]{
	{Name: "variable", Text: func(c Cause) string { return c.Variable }},
	{Name: "groups", Text: func(c Cause) string { return strconv.Itoa(c.Groups) }},
	{Name: "R², %", Text: func(c Cause) string { return report.Scaled(c.Share, 100, 1) }},
	{Name: "adjusted, %", Text: func(c Cause) string { return report.Scaled(c.Adjusted, 100, 1) }},
}

var pairColumns = []page.Column[Comparison]{
	{Name: "of / to", Text: func(c Comparison) string { return c.Of + " / " + c.To }},
	{Name: "limit", Text: func(c Comparison) string { return limitOrRequest(c.Limit, c.Request) }},
	{Name: "jobs", Text: func(c Comparison) string { return strconv.Itoa(c.Jobs) }},
	{Name: "time of a job", Text: func(c Comparison) string { return ratioText(c.Seconds, c.SecondsSpan) }},
	{Name: "CPU time of a job", Text: func(c Comparison) string { return ratioText(c.CPU, c.CPUSpan) }},
}

// claims returns the hypotheses in the form of a page.
func (r Result) claims() []page.Claim {
	var all []page.Claim
	for _, h := range r.Hypotheses {
		all = append(all, page.Claim{Statement: capital(h.Cause), Verdict: h.Verdict, Explanation: h.Figure})
	}
	return all
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
