package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/unit"
)

//go:embed page.html.tmpl
var pageText string

//go:embed page.css
var styleSheet string

// style is what all pages look like.
func style() template.CSS { return template.CSS(styleSheet) }

// A page is what the template of the report shows.
type page struct {
	Result   Result
	Title    string
	Headline string
	Legend   string
	Tables   []pageTable
	CDF      []template.HTML
	CDFModes []Mode
	Plots    []plot
	CPU      []cpuPicture
	Held     []cpuPicture // memory
	Figures  pageTable
	Writes   []writes
	Runs     int
	Control  string
	Skipped  []string // rungs
	Ladder   bool     // the experiment is that of the rungs
}

type pageTable struct {
	Title   string
	Columns []column
	Rows    []pageRow
}

// A column is a mode and the head that it has.
type column struct {
	Mode Mode
	Head string
}

type pageRow struct {
	Label string
	Minor bool
	Cells []string
}

type plot struct {
	Title, Text string
	Picture     template.HTML
}

type cpuPicture struct {
	Mode    Mode
	Picture template.HTML
	Limited bool
}

// writes are the kernel writes of one mode, from one of its runs.
type writes struct {
	Mode  Mode
	Index int
	Lines []string // the first ones
	More  []string
}

// firstWrites is the number of kernel writes that are shown unasked: a mode
// with a watermark writes again and again.
const firstWrites = 12

// WriteHTML writes the result as one HTML page that needs nothing else: styles
// and pictures are inside, there is no script. runs are those of the result;
// without them the page has tables but no pictures.
func WriteHTML(w io.Writer, r Result, runs []Run) error {
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"style":  style,
		"colour": func(m Mode) template.CSS { return template.CSS(colour(m)) },
		"dashed": dashed,
		"class":  func(v stat.Verdict) string { return strings.ReplaceAll(string(v), " ", "-") },
		"join":   strings.Join,
		"modes":  modeList,
		"gib":    func(b int64) string { return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30)) },
		"when":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
		"limit":  limit,
		"mib":    func(b unit.Bytes) string { return fmt.Sprintf("%d MiB", b>>20) },
		"number": func(v float64) string { return number(Number(v), 1) },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, newPage(r, runs)); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}

func newPage(r Result, runs []Run) page {
	ev := gather(r.Experiment, runs)
	view := viewOf(r.Experiment)
	p := page{Result: r, Title: view.title, Headline: headline(r), Legend: legend(r), Runs: len(runs), CDF: distributions(ev, r), Plots: plots(ev, r), Figures: figures(r)}
	for _, t := range view.tables {
		if modes := r.present(t.modes); len(modes) > 1 {
			p.Tables = append(p.Tables, tableOf(r, t.title, modes, view))
		}
	}
	if r.Control != nil {
		p.Control = controlText(r)
	}
	p.Skipped, p.Ladder = skippedTexts(r.Experiment), r.Experiment.Kind == KindKernelQOS
	for _, m := range r.Order {
		used := ev.runs(m)
		if slices.ContainsFunc(used, func(r Run) bool { return r.Histogram != nil }) {
			p.CDFModes = append(p.CDFModes, m)
		}
		if picture := memoryPicture(r.Experiment, used); picture != "" {
			p.Held = append(p.Held, cpuPicture{Mode: m, Picture: picture})
		}
		if i := slices.IndexFunc(used, func(r Run) bool { return len(r.Series) > 1 }); i >= 0 {
			limited := slices.ContainsFunc(used[i].Series, func(s Sample) bool { return s.Limit > 0 })
			p.CPU = append(p.CPU, cpuPicture{m, drawCPU(used[i], r.Experiment.TestedCPUs.Len()), limited})
		}
		if i := slices.IndexFunc(used, func(r Run) bool { return len(r.Writes) > 0 }); i >= 0 {
			lines := used[i].Writes
			first := min(len(lines), firstWrites)
			p.Writes = append(p.Writes, writes{m, used[i].Index, lines[:first], lines[first:]})
		}
	}
	return p
}

// distributions draws all modes, and again at closer range those whose tail is
// near the one of exclusive, where another mode's tail dwarfs them.
func distributions(ev evidence, r Result) []template.HTML {
	pictures := []template.HTML{drawCDF(ev, r.Order)}
	near := slices.DeleteFunc(slices.Clone(r.Order), func(m Mode) bool { return !(r.Modes[m].P99 <= 2*r.Modes[Exclusive].P99) })
	if len(near) > 1 && len(near) < len(r.Order) {
		pictures = append(pictures, drawCDF(ev, near))
	}
	return slices.DeleteFunc(pictures, func(p template.HTML) bool { return p == "" })
}

func tableOf(r Result, title string, modes []Mode, v view) pageTable {
	t := pageTable{Title: title}
	for _, m := range modes {
		t.Columns = append(t.Columns, column{m, v.name(m)})
	}
	for _, row := range v.rows {
		p := pageRow{Label: strings.TrimSpace(row.label), Minor: strings.HasPrefix(row.label, " ")}
		if row.unit != "" {
			p.Label += ", " + row.unit
		}
		for _, m := range modes {
			p.Cells = append(p.Cells, row.cell(r, m))
		}
		if strings.Join(p.Cells, "") != "" {
			t.Rows = append(t.Rows, p)
		}
	}
	return t
}

// plots are the dots of each block: first the two ratios that the claims are
// about, then what was measured.
func plots(ev evidence, r Result) []plot {
	p99 := percentiles["p99"]
	ms := func(us float64) string { return fmt.Sprintf("%.3f ms", us/1e3) }
	us := func(v float64) string { return fmt.Sprintf("%.3g µs", v) }
	ratioEnds := func(e stat.Estimate) string { return ratioEnd(intervalOf(e)) }
	levelEnds := func(format func(float64) string) func(stat.Estimate) string {
		return func(e stat.Estimate) string { return format(e.Value) }
	}
	margin := r.Experiment.Margin
	tailText := fmt.Sprintf("The dashed lines are “no change” and the margin of %s.", limit(margin))
	if r.Control != nil {
		tailText += fmt.Sprintf(" %s is the A/A control: its bar shows how finely this machine can tell two equal modes apart.", ExclusiveAA)
	}
	all := []plot{
		{
			"P99, ratio to exclusive within each block",
			tailText,
			drawDots(ev.ratioStrips(r.Order, Exclusive, p99), scale{title: "Ratio of P99 to exclusive by block", label: "change of P99 to exclusive", format: byChange, ends: ratioEnds, mark: []float64{1, margin}, hi: 2}),
		},
		{
			"Run-queue delay, ratio to exclusive-warm within each block",
			"The dashed lines are “no change” and the limit of 10 %.",
			drawDots(ev.ratioStrips(r.Order, ExclusiveWarm, runDelay), scale{title: "Ratio of run-queue delay to exclusive-warm by block", label: "change of run-queue delay to exclusive-warm", format: byChange, ends: ratioEnds, mark: []float64{1, delayMargin}, hi: 4}),
		},
		{
			"P99 of each block", "",
			drawDots(ev.levelStrips(r.Order, p99), scale{title: "P99 by block", label: "P99 latency", format: microseconds, ends: levelEnds(ms)}),
		},
		{
			"Run-queue delay of each block",
			"How long a thread of the service that wants to run waits for a CPU, on average per timeslice.",
			drawDots(ev.levelStrips(r.Order, runDelay), scale{title: "Run-queue delay by block", label: "run-queue delay per timeslice", format: microseconds, ends: levelEnds(us)}),
		},
	}
	switch {
	case r.Experiment.isMemory():
		all = memoryPlots(ev, r, all[0], all[2])
	case r.Experiment.Kind == KindKernelQOS:
		all = ladderPlots(ev, r, all[0], all[2], all[3])
	}
	return slices.DeleteFunc(all, func(p plot) bool { return p.Picture == "" })
}

// byChange prints a ratio on an axis: "+20 %", or "×12" from ten on.
func byChange(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("×%.3g", v)
	}
	if change := signed(100*(v-1), 0); change != "+0" {
		return change + " %"
	}
	return "0 %"
}

// ratioEnd prints an estimate and its interval in little room.
func ratioEnd(i Interval) string {
	if i.Blocks < 2 {
		return change(i.Estimate)
	}
	return change(i.Estimate) + " [" + strings.TrimSuffix(span(i), " %") + "]"
}

func (ev evidence) ratioStrips(modes []Mode, baseline Mode, m metric) []strip {
	var out []strip
	base := ev.sample(baseline, m)
	for _, mode := range modes {
		if mode == baseline {
			continue
		}
		dots := make(stat.Sample)
		for block, v := range ev.sample(mode, m) {
			if b, ok := base[block]; ok && b > 0 && v > 0 {
				dots[block] = v / b
			}
		}
		out = append(out, strip{mode, dots, ev.ratio(mode, baseline, m)})
	}
	return out
}

// levelStrips shows the geometric mean over blocks, as the ratios do.
func (ev evidence) levelStrips(modes []Mode, m metric) []strip {
	var out []strip
	for _, mode := range modes {
		dots := ev.sample(mode, m)
		maps.DeleteFunc(dots, func(_ int, v float64) bool { return v <= 0 })
		one := make(stat.Sample)
		for block := range dots {
			one[block] = 1
		}
		out = append(out, strip{mode, dots, stat.Ratio(dots, one)})
	}
	return out
}

// figures is the table of everything else that was measured.
func figures(r Result) pageTable {
	figure := func(label, unit string, text func(ModeResult) string) row {
		return row{label, unit, func(r Result, m Mode) string { return text(r.Modes[m]) }}
	}
	pooled := func(pick func(Latency) float64) func(ModeResult) string {
		return func(m ModeResult) string {
			if m.Pooled == nil {
				return unknown
			}
			return number(Number(pick(*m.Pooled)/1e3), 3)
		}
	}
	list := []row{
		figure("runs used (void)", "", func(m ModeResult) string { return fmt.Sprintf("%d (%d)", m.Runs, m.Void) }),
		figure("requests", "", func(m ModeResult) string { return fmt.Sprint(m.Requests) }),
		figure("errors", "", func(m ModeResult) string { return countList(m.Errors) }),
		figure("mean", "ms", func(m ModeResult) string { return scaled(m.Mean, 1e-3, 3) }),
		figure("max", "ms", func(m ModeResult) string { return scaled(m.Max, 1e-3, 1) }),
		figure("pooled P50", "ms", pooled(func(l Latency) float64 { return l.P50 })),
		figure("pooled P99", "ms", pooled(func(l Latency) float64 { return l.P99 })),
		figure("pooled P99.9", "ms", pooled(func(l Latency) float64 { return l.P999 })),
		figure("CPU %", "", func(m ModeResult) string { return number(m.CPUPercent, 1) }),
		figure("CPUs used by LS", "", func(m ModeResult) string { return number(m.LSCPU, 3) }),
		figure("CPUs used by BE", "", func(m ModeResult) string { return number(m.BECPU, 3) }),
		figure("CPUs used by others", "", func(m ModeResult) string { return number(m.OtherCPU, 3) }),
		figure("BE frames/s", "", func(m ModeResult) string { return number(Number(positive(float64(m.FramesPerS))), 1) }),
		figure("BE frames per CPU-second", "", func(m ModeResult) string { return number(m.FramesPerCPU, 1) }),
		figure("BE share of idle capacity", "%", func(m ModeResult) string { return scaled(m.Goodput, 100, 1) }),
		figure("run-queue delay", "µs", func(m ModeResult) string { return number(m.DelayPerRun, 2) }),
		figure("LS throttled", "% of time", func(m ModeResult) string { return scaled(m.LSThrottled, 100, 1) }),
		figure("BE throttled", "% of time", func(m ModeResult) string { return scaled(m.BEThrottled, 100, 1) }),
		figure("PSI cpu some", "%", func(m ModeResult) string { return scaled(m.PSICPU, 100, 1) }),
		figure("steal", "%", func(m ModeResult) string { return scaled(m.Steal, 100, 2) }),
		figure("client lag P99", "µs", func(m ModeResult) string { return number(m.ClientLag, 0) }),
		figure("client CPU", "%", func(m ModeResult) string { return scaled(m.ClientCPU, 100, 0) }),
	}
	if r.Experiment.isMemory() {
		list = slices.DeleteFunc(list, func(r row) bool {
			return strings.HasPrefix(r.label, "BE frames") || strings.HasPrefix(r.label, "BE share")
		})
		list = append(list, memoryFigures()...)
	}
	if slices.ContainsFunc(r.Order, func(m Mode) bool { return r.Modes[m].Traced != nil }) {
		list = append(list, tracedFigures()...)
	}
	return tableOf(r, "", r.Order, view{rows: list})
}
