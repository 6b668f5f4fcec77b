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

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/unit"
)

//go:embed page.html.tmpl
var pageText string

//go:embed page.css
var styleSheet string

// Style returns the style sheet of all pages.
func Style() template.CSS { return template.CSS(styleSheet) }

// A page is the data of the report's template.
type page struct {
	Result   Result
	Title    string
	Headline string
	Legend   string
	Tables   []pageTable
	CDF      []template.HTML
	CDFModes []Mode
	Plots    []Plot
	CPU      []modePicture
	Gallery  *Gallery
	Pictures []modePicture // of the gallery
	Figures  pageTable
	Writes   []writes
	Runs     int
	Control  string
	LeftOut  []string
	Details  any
	// Transcodes has the same meaning as in a Study.
	Transcodes bool
}

type pageTable struct {
	Title   string
	Columns []column
	Rows    []PageRow
}

// A column is a mode and its heading.
type column struct {
	Mode Mode
	Head string
}

// A PageRow is a row of a table of the page.
type PageRow struct {
	Label string
	Minor bool
	Cells []string
}

type modePicture struct {
	Mode    Mode
	Picture template.HTML
	Limited bool
}

// writes are the kernel writes of one run of a mode.
type writes struct {
	Mode  Mode
	Index int
	Lines []string // the first writes
	More  []string
}

// firstWrites is the number of kernel writes of a run that the page shows
// without a click. In a mode with CPU suppress there are very many writes.
const firstWrites = 12

// WritePage writes the result as one HTML page. The page needs no other file:
// it contains its styles and pictures, and no scripts.
func (a Analysis) WritePage(w io.Writer) error {
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"style":  Style,
		"colour": func(m Mode) template.CSS { return template.CSS(Colour(m)) },
		"dashed": dashed,
		"class":  func(v stat.Verdict) string { return strings.ReplaceAll(string(v), " ", "-") },
		"join":   strings.Join,
		"modes":  modeList,
		"gib":    func(b int64) string { return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30)) },
		"when":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
		"limit":  Limit,
		"mib":    func(b unit.Bytes) string { return fmt.Sprintf("%d MiB", b>>20) },
		"number": func(v float64) string { return FormatNumber(Number(v), 1) },
	}).Parse(pageText)
	if err == nil {
		_, err = tmpl.New("method").Parse(a.study.Method)
	}
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, a.page()); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}

func (a Analysis) page() page {
	r, ev, study := a.Base, a.evidence, a.study
	p := page{
		Result: r, Title: study.Title, Headline: study.Headline(r), Legend: study.Legend(r), Runs: a.all, CDF: distributions(ev, r),
		Plots: a.plots(), Figures: a.figures(), Gallery: study.Gallery, LeftOut: study.LeftOut, Details: study.Details, Transcodes: study.Transcodes,
	}
	for _, t := range study.Tables {
		if modes := presentModes(r, t.Modes); len(modes) > 1 {
			p.Tables = append(p.Tables, tableOf(r, t.Title, modes, slices.Concat(study.Rows, stallRows(r)), study.head))
		}
	}
	if r.Control != nil {
		p.Control = controlText(r)
	}
	for _, m := range r.Order {
		used := ev.Runs(m)
		if slices.ContainsFunc(used, func(r Run) bool { return r.Histogram != nil }) {
			p.CDFModes = append(p.CDFModes, m)
		}
		if study.Gallery != nil {
			if picture := study.Gallery.Picture(used); picture != "" {
				p.Pictures = append(p.Pictures, modePicture{Mode: m, Picture: picture})
			}
		}
		if i := slices.IndexFunc(used, func(r Run) bool { return len(r.Series) > 1 }); i >= 0 {
			limited := slices.ContainsFunc(used[i].Series, func(s Sample) bool { return s.Limit > 0 })
			p.CPU = append(p.CPU, modePicture{m, drawCPU(used[i], r.Experiment.TestedCPUs.Len()), limited})
		}
		if i := slices.IndexFunc(used, func(r Run) bool { return len(r.Writes) > 0 }); i >= 0 {
			lines := used[i].Writes
			first := min(len(lines), firstWrites)
			p.Writes = append(p.Writes, writes{m, used[i].Index, lines[:first], lines[first:]})
		}
	}
	return p
}

// distributions draws the distributions of all modes in one picture. If a mode
// has a long tail, the modes near exclusive are hard to see. Then a second
// picture shows only those.
func distributions(ev Evidence, r Result) []template.HTML {
	pictures := []template.HTML{drawCDF(ev, r.Order)}
	near := slices.DeleteFunc(slices.Clone(r.Order), func(m Mode) bool { return !(r.Modes[m].P99 <= 2*r.Modes[Exclusive].P99) })
	if len(near) > 1 && len(near) < len(r.Order) {
		pictures = append(pictures, drawCDF(ev, near))
	}
	return slices.DeleteFunc(pictures, func(p template.HTML) bool { return p == "" })
}

func tableOf(r Result, title string, modes []Mode, rows []Row, head func(Mode) string) pageTable {
	t := pageTable{Title: title}
	for _, m := range modes {
		t.Columns = append(t.Columns, column{m, head(m)})
	}
	for _, row := range rows {
		p := PageRow{Label: strings.TrimSpace(row.Label), Minor: strings.HasPrefix(row.Label, " ")}
		if row.Unit != "" {
			p.Label += ", " + row.Unit
		}
		for _, m := range modes {
			p.Cells = append(p.Cells, row.Cell(r, m))
		}
		if strings.Join(p.Cells, "") != "" {
			t.Rows = append(t.Rows, p)
		}
	}
	return t
}

// plots returns the dot plots by block. The first ones show the ratios of the
// two main claims. The others show the measured values.
func (a Analysis) plots() []Plot {
	r, ev := a.Base, a.evidence
	p99 := Percentiles["p99"]
	ms := func(us float64) string { return fmt.Sprintf("%.3f ms", us/1e3) }
	us := func(v float64) string { return fmt.Sprintf("%.3g µs", v) }
	ratioEnds := func(e stat.Estimate) string { return RatioEnd(IntervalOf(e)) }
	levelEnds := func(format func(float64) string) func(stat.Estimate) string {
		return func(e stat.Estimate) string { return format(e.Value) }
	}
	margin := r.Experiment.Margin
	tailText := fmt.Sprintf("The dashed lines are “no change” and the margin of %s.", Limit(margin))
	if r.Control != nil {
		tailText += fmt.Sprintf(" %s is the A/A control: its bar shows how finely this machine can tell two equal modes apart.", ExclusiveAA)
	}
	common := CommonPlots{
		P99Ratio: Plot{
			"P99, ratio to exclusive within each block",
			tailText,
			chart.Dots(ev.RatioStrips(r.Order, Exclusive, p99), chart.Scale{Title: "Ratio of P99 to exclusive by block", Label: "change of P99 to exclusive", Format: ByChange, Ends: ratioEnds, Mark: []float64{1, margin}, Most: 2}),
		},
		DelayRatio: Plot{
			"Run-queue delay, ratio to exclusive-warm within each block",
			"The dashed lines are “no change” and the limit of 10 %.",
			chart.Dots(ev.RatioStrips(r.Order, ExclusiveWarm, RunDelay), chart.Scale{Title: "Ratio of run-queue delay to exclusive-warm by block", Label: "change of run-queue delay to exclusive-warm", Format: ByChange, Ends: ratioEnds, Mark: []float64{1, DelayMargin}, Most: 4}),
		},
		P99: Plot{
			"P99 of each block", "",
			chart.Dots(ev.LevelStrips(r.Order, p99), chart.Scale{Title: "P99 by block", Label: "P99 latency", Format: Microseconds, Ends: levelEnds(ms)}),
		},
		Delay: Plot{
			"Run-queue delay of each block",
			"How long a thread of the service that wants to run waits for a CPU, on average per timeslice.",
			chart.Dots(ev.LevelStrips(r.Order, RunDelay), chart.Scale{Title: "Run-queue delay by block", Label: "run-queue delay per timeslice", Format: Microseconds, Ends: levelEnds(us)}),
		},
	}
	all := []Plot{common.P99Ratio, common.DelayRatio, common.P99, common.Delay}
	if a.study.Plots != nil {
		all = a.study.Plots(ev, r, common)
	}
	return slices.DeleteFunc(all, func(p Plot) bool { return p.Picture == "" })
}

// ByChange prints a ratio on an axis as "+20 %", or as "×12" if it is 10 or more.
func ByChange(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("×%.3g", v)
	}
	if change := signed(100*(v-1), 0); change != "+0" {
		return change + " %"
	}
	return "0 %"
}

// RatioEnd prints an estimate and its interval in a short form.
func RatioEnd(i Interval) string {
	if i.Blocks < 2 {
		return Change(i.Estimate)
	}
	return Change(i.Estimate) + " [" + strings.TrimSuffix(Span(i), " %") + "]"
}

// RatioStrips returns the ratios of modes to a baseline, computed within each block.
func (ev Evidence) RatioStrips(modes []Mode, baseline Mode, m Metric) []chart.Strip {
	var out []chart.Strip
	base := ev.Sample(baseline, m)
	for _, mode := range modes {
		if mode == baseline {
			continue
		}
		dots := make(stat.Sample)
		for block, v := range ev.Sample(mode, m) {
			if b, ok := base[block]; ok && b > 0 && v > 0 {
				dots[block] = v / b
			}
		}
		out = append(out, chart.Strip{Name: string(mode), Style: Colour(mode), Dots: dots, Estimate: ev.Ratio(mode, baseline, m)})
	}
	return out
}

// LevelStrips returns the values of each block, and the geometric mean over all blocks.
func (ev Evidence) LevelStrips(modes []Mode, m Metric) []chart.Strip {
	var out []chart.Strip
	for _, mode := range modes {
		dots := ev.Sample(mode, m)
		maps.DeleteFunc(dots, func(_ int, v float64) bool { return v <= 0 })
		one := make(stat.Sample)
		for block := range dots {
			one[block] = 1
		}
		out = append(out, chart.Strip{Name: string(mode), Style: Colour(mode), Dots: dots, Estimate: stat.Ratio(dots, one, ev.Rule)})
	}
	return out
}

// figures returns the table with the measurements that no other table has.
func (a Analysis) figures() pageTable {
	r := a.Base
	figure := func(label, unit string, text func(ModeResult) string) Row {
		return Row{label, unit, func(r Result, m Mode) string { return text(r.Modes[m]) }}
	}
	pooled := func(pick func(load.Latency) float64) func(ModeResult) string {
		return func(m ModeResult) string {
			if m.Pooled == nil {
				return Unknown
			}
			return FormatNumber(Number(pick(*m.Pooled)/1e3), 3)
		}
	}
	list := []Row{
		figure("runs used (void)", "", func(m ModeResult) string { return fmt.Sprintf("%d (%d)", m.Runs, m.Void) }),
		figure("requests", "", func(m ModeResult) string { return fmt.Sprint(m.Requests) }),
		figure("errors", "", func(m ModeResult) string { return countList(m.Errors) }),
		figure("mean", "ms", func(m ModeResult) string { return Scaled(m.Mean, 1e-3, 3) }),
		figure("max", "ms", func(m ModeResult) string { return Scaled(m.Max, 1e-3, 1) }),
		figure("pooled P50", "ms", pooled(func(l load.Latency) float64 { return l.P50 })),
		figure("pooled P99", "ms", pooled(func(l load.Latency) float64 { return l.P99 })),
		figure("pooled P99.9", "ms", pooled(func(l load.Latency) float64 { return l.P999 })),
		figure("CPU %", "", func(m ModeResult) string { return FormatNumber(m.CPUPercent, 1) }),
		figure("CPUs used by LS", "", func(m ModeResult) string { return FormatNumber(m.LSCPU, 3) }),
		figure("CPUs used by BE", "", func(m ModeResult) string { return FormatNumber(m.BECPU, 3) }),
		figure("CPUs used by others", "", func(m ModeResult) string { return FormatNumber(m.OtherCPU, 3) }),
		figure("BE frames/s", "", func(m ModeResult) string { return FormatNumber(Number(Positive(float64(m.FramesPerS))), 1) }),
		figure("BE frames per CPU-second", "", func(m ModeResult) string { return FormatNumber(m.FramesPerCPU, 1) }),
		figure("BE share of idle capacity", "%", func(m ModeResult) string { return Scaled(m.Goodput, 100, 1) }),
		figure("run-queue delay", "µs", func(m ModeResult) string { return FormatNumber(m.DelayPerRun, 2) }),
		figure("waiting", "ms/s", func(m ModeResult) string { return Scaled(m.Waiting, 1e-3, 3) }),
		figure("LS throttled", "% of time", func(m ModeResult) string { return Scaled(m.LSThrottled, 100, 1) }),
		figure("BE throttled", "% of time", func(m ModeResult) string { return Scaled(m.BEThrottled, 100, 1) }),
		figure("PSI cpu some", "%", func(m ModeResult) string { return Scaled(m.PSICPU, 100, 1) }),
		figure("steal", "%", func(m ModeResult) string { return Scaled(m.Steal, 100, 2) }),
		figure("client lag P99", "µs", func(m ModeResult) string { return FormatNumber(m.ClientLag, 0) }),
		figure("client CPU", "%", func(m ModeResult) string { return Scaled(m.ClientCPU, 100, 0) }),
	}
	list = append(list, stallRows(r)...)
	if a.study.Figures != nil {
		list = a.study.Figures(list)
	}
	return tableOf(r, "", r.Order, list, func(m Mode) string { return string(m) })
}
