package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/stat"
)

// firstWrites is the number of kernel writes of a run that the page shows
// without a click. In a mode with CPU suppress there are very many writes.
const firstWrites = 12

// Page returns what the analysis shows.
func (a Analysis) Page() page.Page {
	r, study := a.Base, a.study
	e := r.Experiment
	p := e.Page(study.Title, fmt.Sprintf("in runs/ for each of the %d runs its JSON and its HdrHistogram log", a.all))
	p.Lead, p.Warnings, p.Setup = []string{study.Headline(r)}, r.Warnings, append(p.Setup, study.Setup...)
	for _, t := range study.Tables {
		if modes := presentModes(r, t.Modes); len(modes) > 1 {
			p.Sections = append(p.Sections, page.Section{Title: t.Title, Table: tableOf(r, modes, slices.Concat(study.Rows, stallRows(r)), study.head)})
		}
	}
	p.Sections = append(p.Sections, page.Section{Legend: study.Legend(r)}, page.Section{Title: "Claims", Claims: ShownClaims(r.Claims)})
	if r.Control != nil {
		p.Sections = append(p.Sections, page.Section{Title: "A/A control", Text: controlText(r)})
	}
	p.Sections = append(p.Sections, a.pictures()...)
	p.Sections = append(p.Sections,
		page.Section{
			Title: "All figures", On: page.OnlyHTML, Table: a.figures(),
			Legend: "Medians over blocks, but for “pooled”: percentiles of all requests of all valid runs, from added histograms. Percentiles are never averaged.",
		},
		page.Section{Title: "What was written to the kernel, and why", On: page.OnlyHTML, Details: a.writes()})
	void := page.Section{Title: fmt.Sprintf("Void runs (not used): %d", len(r.VoidRuns))}
	for _, v := range r.VoidRuns {
		void.Items = append(void.Items, fmt.Sprintf("%03d %s, block %d: %s", v.Index, v.Mode, v.Block, strings.Join(v.Reasons, "; ")))
	}
	p.Sections = append(p.Sections, void, page.Section{Title: "Mechanisms left out", Items: study.LeftOut},
		page.Section{Title: "Method", On: page.OnlyHTML, Body: methodOf(e) + study.Method},
		page.Section{Title: "Calibration", On: page.OnlyHTML, Items: e.Calibration})
	if study.Ending != nil {
		p.Short = page.Section{Title: endingTitle(e), Items: study.Ending(a.evidence, r)}
	}
	return p
}

// ShownClaims returns claims in the form of a page.
func ShownClaims(claims []Claim) []page.Claim {
	var shown []page.Claim
	for _, c := range claims {
		shown = append(shown, page.Claim{Statement: c.Statement, Verdict: string(c.Verdict), Explanation: c.Explanation})
	}
	return shown
}

// Heads returns the headings of columns with modes. head may be nil.
func Heads(modes []Mode, head func(Mode) string) []page.Head {
	var heads []page.Head
	for _, m := range modes {
		h := page.Head{Text: string(m), Style: template.CSS(Colour(m))}
		if head != nil {
			h.Text = head(m)
		}
		heads = append(heads, h)
	}
	return heads
}

func tableOf(r Result, modes []Mode, rows []Row, head func(Mode) string) page.Table {
	var cells []InMode
	for _, m := range modes {
		cells = append(cells, InMode{r, m})
	}
	t := page.Across(rows, Heads(modes, head), cells)
	t.Label, t.Cell = LabelWidth, CellWidth
	return t
}

// Key returns the legend of curves.
func Key(modes []Mode) template.HTML {
	return page.Render(`{{range .}}<li style="{{colour .}}"><svg viewBox="0 0 30 10"><path class="curve{{dashed .}}" d="M0 5H30"/></svg>{{.}}</li>{{end}}`, template.FuncMap{
		"colour": func(m Mode) template.CSS { return template.CSS(Colour(m)) }, "dashed": dashed,
	}, modes)
}

// AreaKey returns the legend of areas over time: the class of each area in the
// style sheet, and its name. limit names the line; empty: there is none.
func AreaKey(limit string, areas ...[2]string) template.HTML {
	return page.Render(`{{range .Areas}}<li><svg viewBox="0 0 30 10"><rect class="{{index . 0}}" width="30" height="10"/></svg>{{index . 1}}</li>
{{end}}{{with .Limit}}<li><svg viewBox="0 0 30 10"><path class="limit" d="M0 5H30"/></svg>{{.}}</li>{{end}}`, nil, struct {
		Areas [][2]string
		Limit string
	}{areas, limit})
}

// pictures returns the sections with pictures.
func (a Analysis) pictures() []page.Section {
	r, ev, gallery := a.Base, a.evidence, a.study.Gallery
	latency := page.Section{
		Title: "Latency", On: page.OnlyHTML, Plots: distributions(ev, r),
		Text: "All requests of all valid runs of a mode together. Each step up the axis from 90 % to 99 % to 99.9 % is a tenth of the requests above it: the further right a curve leans at the top, the longer its tail.",
	}
	cpu := page.Section{
		Title: "CPU over time", On: page.OnlyHTML, Text: "One run of each mode, on the tested CPUs.", Small: true,
		Key: AreaKey("limit of BE", [2]string{"be", "batch work (BE)"}, [2]string{"ls", "service (LS)"}, [2]string{"other", "others"}),
	}
	own := page.Section{On: page.OnlyHTML, Small: true}
	if gallery != nil {
		own.Title, own.Text, own.Key = gallery.Title, gallery.Text, gallery.Legend
	}
	var curves []Mode
	for _, m := range r.Order {
		used := ev.Runs(m)
		if slices.ContainsFunc(used, func(r Run) bool { return r.Histogram != nil }) {
			curves = append(curves, m)
		}
		if gallery != nil {
			if picture := gallery.Picture(used); picture != "" {
				own.Plots = append(own.Plots, page.Plot{Title: string(m), Picture: picture})
			}
		}
		if i := slices.IndexFunc(used, func(r Run) bool { return len(r.Series) > 1 }); i >= 0 {
			cpu.Plots = append(cpu.Plots, page.Plot{Title: string(m), Picture: drawCPU(used[i], r.Experiment.TestedCPUs.Len())})
		}
	}
	latency.Key = Key(curves)
	blocks := page.Section{
		Title: "Blocks", On: page.OnlyHTML, Plots: a.plots(),
		Text: "A dot is one run; the diamond is the estimate over all blocks and the bar its 95 % interval. An arrow points at what lies outside the picture; its value stands at the right.",
	}
	return slices.DeleteFunc([]page.Section{latency, blocks, own, cpu}, func(s page.Section) bool { return len(s.Plots) == 0 })
}

// writes returns the kernel writes of one run of each mode.
func (a Analysis) writes() []page.Detail {
	var all []page.Detail
	for _, m := range a.Base.Order {
		used := a.evidence.Runs(m)
		i := slices.IndexFunc(used, func(r Run) bool { return len(r.Writes) > 0 })
		if i < 0 {
			continue
		}
		lines := used[i].Writes
		first := min(len(lines), firstWrites)
		all = append(all, page.Detail{
			Title: fmt.Sprintf("%s, as in run %d", m, used[i].Index), Shown: strings.Join(lines[:first], "\n"), Hidden: strings.Join(lines[first:], "\n"),
		})
	}
	return all
}

// methodOf describes the method that all experiments with a service have.
func methodOf(e Experiment) template.HTML {
	return page.Render(method, template.FuncMap{"limit": Limit}, e)
}

//go:embed method.html.tmpl
var method string

// distributions draws the distributions of all modes in one picture. If a mode
// has a long tail, the modes near exclusive are hard to see. Then a second
// picture shows only those.
func distributions(ev Evidence, r Result) []page.Plot {
	pictures := []page.Plot{{Picture: drawCDF(ev, r.Order)}}
	near := slices.DeleteFunc(slices.Clone(r.Order), func(m Mode) bool { return !(r.Modes[m].P99 <= 2*r.Modes[Exclusive].P99) })
	if len(near) > 1 && len(near) < len(r.Order) {
		pictures = append(pictures, page.Plot{Title: "The same at closer range", Picture: drawCDF(ev, near)})
	}
	return slices.DeleteFunc(pictures, func(p page.Plot) bool { return p.Picture == "" })
}

// plots returns the dot plots by block. The first ones show the ratios of the
// two main claims. The others show the measured values.
func (a Analysis) plots() []page.Plot {
	r, ev := a.Base, a.evidence
	p99 := Percentiles["p99"]
	ms := func(us float64) string { return fmt.Sprintf("%.3f ms", us/1e3) }
	us := func(v float64) string { return fmt.Sprintf("%.3g µs", v) }
	levelEnds := func(format func(float64) string) func(stat.Estimate) string {
		return func(e stat.Estimate) string { return format(e.Value) }
	}
	margin := r.Experiment.Margin
	tailText := fmt.Sprintf("The dashed lines are “no change” and the margin of %s.", Limit(margin))
	if r.Control != nil {
		tailText += fmt.Sprintf(" %s is the A/A control: its bar shows how finely this machine can tell two equal modes apart.", ExclusiveAA)
	}
	common := CommonPlots{
		P99Ratio: page.Plot{
			Title:   "P99, ratio to exclusive within each block",
			Text:    tailText,
			Picture: chart.Dots(ev.RatioStrips(r.Order, Exclusive, p99), chart.Scale{Title: "Ratio of P99 to exclusive by block", Label: "change of P99 to exclusive", Format: ByChange, Ends: RatioEnd, Mark: []float64{1, margin}, Most: 2}),
		},
		DelayRatio: page.Plot{
			Title:   "Run-queue delay, ratio to exclusive-warm within each block",
			Text:    "The dashed lines are “no change” and the limit of 10 %.",
			Picture: chart.Dots(ev.RatioStrips(r.Order, ExclusiveWarm, RunDelay), chart.Scale{Title: "Ratio of run-queue delay to exclusive-warm by block", Label: "change of run-queue delay to exclusive-warm", Format: ByChange, Ends: RatioEnd, Mark: []float64{1, DelayMargin}, Most: 4}),
		},
		P99: page.Plot{
			Title:   "P99 of each block",
			Picture: chart.Dots(ev.LevelStrips(r.Order, p99), chart.Scale{Title: "P99 by block", Label: "P99 latency", Format: Microseconds, Ends: levelEnds(ms)}),
		},
		Delay: page.Plot{
			Title:   "Run-queue delay of each block",
			Text:    "How long a thread of the service that wants to run waits for a CPU, on average per timeslice.",
			Picture: chart.Dots(ev.LevelStrips(r.Order, RunDelay), chart.Scale{Title: "Run-queue delay by block", Label: "run-queue delay per timeslice", Format: Microseconds, Ends: levelEnds(us)}),
		},
	}
	all := []page.Plot{common.P99Ratio, common.DelayRatio, common.P99, common.Delay}
	if a.study.Plots != nil {
		all = a.study.Plots(ev, r, common)
	}
	return slices.DeleteFunc(all, func(p page.Plot) bool { return p.Picture == "" })
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
		return Change(i.Value)
	}
	return Change(i.Value) + " [" + strings.TrimSuffix(Span(i), " %") + "]"
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
func (a Analysis) figures() page.Table {
	r := a.Base
	figure := func(label, unit string, text func(ModeResult) string) Row {
		return Row{Name: label, Unit: unit, Text: func(c InMode) string { return text(c.of()) }}
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
	return tableOf(r, r.Order, list, nil)
}
