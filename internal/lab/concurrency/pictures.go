package concurrency

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/model/unit"
)

// colours are the styles of ways to run jobs, in the order of their names.
var colours = []string{"--c:var(--m-default)", "--c:var(--m-tenon)", "--c:var(--m-burstable)", "--c:var(--m-solo)", "--c:var(--m-exclusive-warm)", "--c:var(--m-tenon-siblings)", "--c:var(--m-exclusive)"}

func plots(r Result) []page.Plot {
	var all []page.Plot
	lo, hi := math.Inf(1), 0.0
	for _, o := range r.measured {
		if o.CPUSeconds > 0 {
			lo, hi = min(lo, o.CPUSeconds), max(hi, o.CPUSeconds)
		}
	}
	for _, how := range ways(r) {
		all = append(all, page.Plot{
			Title:   fmt.Sprintf("Time of a job by limit and jobs on a node: %s", how),
			Text:    "The number is seconds a job. The shade is the CPU time of a job, on one scale for all fields: dark fields pay more CPU for the same work.",
			Picture: heat(r, how, lo, hi),
		})
	}
	all = append(all,
		page.Plot{
			Title:   "CPU time of a job by the load of the node",
			Text:    "One dot for each set of jobs that ran beside each other. If the CPU time depended on the limit or on the number of jobs, dots at one place of the axis would lie far apart.",
			Picture: strip(r),
		},
		page.Plot{Title: "Time of a job by jobs on a node", Text: "A line for each way and limit; dashed lines stand at the number of cores and of CPUs.", Picture: lines(r)},
		page.Plot{Title: "Short jobs or many jobs", Text: "A dot for each way to run the jobs: how long a job takes, and how many jobs a node ends in an hour. Up and to the left is better.", Picture: tradeOff(r)},
	)
	return slices.DeleteFunc(all, func(p page.Plot) bool { return p.Picture == "" })
}

// ways returns the names of the ways to run jobs.
func ways(r Result) []string {
	names := map[string]bool{}
	for _, o := range r.measured {
		names[name(o.Cell)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// heat draws the options of one way to run jobs. If they differ in memory, it
// draws those with the most memory, because these jobs are least likely to be
// short of it.
func heat(r Result, how string, lo, hi float64) template.HTML {
	best := map[[2]int]jobs.Option{}
	var limits []unit.MilliCPU
	var numbers []int
	for _, o := range r.measured {
		if name(o.Cell) != how {
			continue
		}
		k := [2]int{int(o.Cell.CPU), o.Cell.Concurrency}
		if old, ok := best[k]; !ok || o.Cell.Memory > old.Cell.Memory {
			best[k] = o
		}
		limits, numbers = append(limits, o.Cell.CPU), append(numbers, o.Cell.Concurrency)
	}
	slices.Sort(limits)
	slices.Sort(numbers)
	limits, numbers = slices.Compact(limits), slices.Compact(numbers)
	m := chart.HeatMap{Low: lo, High: hi, Title: "Seconds a job by limit and jobs", XLabel: "CPU limit of a job", YLabel: "jobs"}
	if slices.ContainsFunc(r.Options, func(o Option) bool { return o.Request > 0 && name(o.cell()) == how }) {
		m.Title, m.XLabel = "Seconds a job by request and jobs", "CPU request of a job"
	}
	for _, l := range limits {
		m.Columns = append(m.Columns, limitText(l))
	}
	for _, n := range numbers {
		m.Rows = append(m.Rows, strconv.Itoa(n))
		row := make([]chart.HeatCell, len(limits))
		for x, l := range limits {
			o, ok := best[[2]int{int(l), n}]
			if !ok {
				continue
			}
			row[x] = chart.HeatCell{
				Text: jobs.Figure(o.Seconds.Value), Value: o.CPUSeconds,
				Title: fmt.Sprintf("%s: %s s a job, %s CPU-s", describe(o.Cell), jobs.Figure(o.Seconds.Value), costText(o.CPUSeconds)),
			}
		}
		m.Cells = append(m.Cells, row)
	}
	return chart.Heat(m)
}

func strip(r Result) template.HTML {
	byWay := map[string]*chart.Series{}
	for _, w := range r.costs.Waves {
		how := name(w.Cell)
		if byWay[how] == nil {
			byWay[how] = &chart.Series{Name: how}
		}
		s, _ := w.CPUSeconds()
		byWay[how].Points = append(byWay[how].Points, chart.Point{X: w.Demand(), Y: s})
		byWay[how].Titles = append(byWay[how].Titles, fmt.Sprintf("%s: %s CPU-s at %.1f CPUs", describe(w.Cell), costText(s), w.Demand()))
	}
	var marks []float64
	if n := r.Experiment.Node; n.CPUs > 0 {
		marks = append(marks, float64(n.CPUs))
	}
	return chart.Scatter(styleSeries(byWay), chart.Chart{
		Title: "CPU time of a job over the CPUs asked for", XLabel: "CPUs that the jobs of the node ask for together", YLabel: "CPU-seconds a job",
		XText: short, YText: short, YLog: true, Marks: marks, RightOfTheName: 190,
	})
}

func lines(r Result) template.HTML {
	series := map[string]*chart.Series{}
	for _, o := range r.measured {
		k := name(o.Cell) + limitMark + limitOrRequest(limitOf(o))
		if series[k] == nil {
			series[k] = &chart.Series{Name: k, Joined: true}
		}
		series[k].Points = append(series[k].Points, chart.Point{X: o.Beside, Y: o.Seconds.Value})
	}
	maps.DeleteFunc(series, func(_ string, s *chart.Series) bool { return len(s.Points) < 2 })
	var marks []float64
	for _, n := range []int{r.Experiment.Node.Cores, r.Experiment.Node.CPUs} {
		if n > 0 {
			marks = append(marks, float64(n))
		}
	}
	return chart.Scatter(styleSeries(series), chart.Chart{
		Title: "Seconds a job over the jobs on a node", XLabel: "jobs beside each other on a node", YLabel: "seconds a job",
		XText: short, YText: short, YLog: true, Marks: slices.Compact(marks), RightOfTheName: 270, Height: 380,
	})
}

func tradeOff(r Result) template.HTML {
	byWay := map[string]*chart.Series{}
	for _, o := range r.measured {
		how := name(o.Cell)
		if byWay[how] == nil {
			byWay[how] = &chart.Series{Name: how}
		}
		byWay[how].Points = append(byWay[how].Points, chart.Point{X: o.Seconds.Value, Y: o.Hourly.Value})
		byWay[how].Titles = append(byWay[how].Titles, fmt.Sprintf("%s: %s s a job, %s jobs an hour", describe(o.Cell), jobs.Figure(o.Seconds.Value), jobs.Figure(o.Hourly.Value)))
	}
	return chart.Scatter(styleSeries(byWay), chart.Chart{
		Title: "Jobs an hour over seconds a job", XLabel: "seconds a job", YLabel: "jobs an hour",
		XText: short, YText: whole, XLog: true, FromZero: true, RightOfTheName: 190,
	})
}

// styleSeries returns the series sorted by name. Series of the same way to run the
// jobs have the same colour, even if their limits differ.
func styleSeries(series map[string]*chart.Series) []chart.Series {
	way := func(key string) string {
		before, _, _ := strings.Cut(key, limitMark)
		return before
	}
	var ways []string
	for k := range series {
		ways = append(ways, way(k))
	}
	slices.Sort(ways)
	ways = slices.Compact(ways)
	var all []chart.Series
	for _, k := range slices.Sorted(maps.Keys(series)) {
		s := *series[k]
		s.Style = colours[slices.Index(ways, way(k))%len(colours)]
		all = append(all, s)
	}
	return all
}

// limitMark separates the way and the limit in the name of a series.
const limitMark = ", limit "

func whole(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
