package report

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/chart"
)

// drawCPU shows how CPU time was used during one run. BE is at the bottom, so that its
// use can be compared with its limit. LS is above BE, and all other work is above LS.
func drawCPU(r Run, tested int) template.HTML {
	series := slices.Clone(r.Series)
	if len(series) < 2 {
		return ""
	}
	slices.SortStableFunc(series, func(a, b Sample) int { return cmp.Compare(a.At, b.At) })
	edge := func(upTo func(Sample) float64) []chart.Point {
		points := make([]chart.Point, len(series))
		for i, s := range series {
			points[i] = chart.Point{X: s.At.Seconds(), Y: upTo(s)}
		}
		return points
	}
	picture := chart.Stack{
		Title: "CPU over time in mode " + string(r.Mode), Label: fmt.Sprintf("run %03d, CPUs of the tested set", r.Index),
		Length: max(series[len(series)-1].At, time.Millisecond).Seconds(), Most: float64(max(tested, 1)),
		Layers: []chart.Layer{
			{Class: "other", Edge: edge(func(s Sample) float64 { return s.BE + s.LS + s.Other })},
			{Class: "ls", Edge: edge(func(s Sample) float64 { return s.BE + s.LS })},
			{Class: "be", Edge: edge(func(s Sample) float64 { return s.BE })},
		},
	}
	for _, s := range series {
		if s.Limit > 0 {
			picture.Limit = append(picture.Limit, chart.Point{X: s.At.Seconds(), Y: s.Limit})
		}
	}
	return picture.HTML()
}

// drawCDF shows the latency distribution of each mode.
func drawCDF(ev Evidence, modes []Mode) template.HTML {
	c := chart.CDF{Title: "Cumulative distribution of latency by mode", Label: "latency, from the intended send time to the last byte (log scale)", Format: Microseconds}
	for _, m := range modes {
		if h := ev.poolHistograms(m); h != nil && h.TotalCount() > 0 {
			c.Curves = append(c.Curves, chart.Distribution{
				Class: "curve" + dashed(m), Style: Colour(m), Count: h.TotalCount(),
				At: func(p float64) float64 { return float64(h.ValueAtPercentile(p)) },
			})
		}
	}
	return c.HTML()
}

// Colour sets the variable --c to the colour of a mode. A mode without a colour
// in the style sheet gets the colour of text.
func Colour(m Mode) string {
	return fmt.Sprintf("--c:var(--m-%s,currentColor)", html.EscapeString(string(m)))
}

// dashed returns the CSS class of a mode's line. Some lines are dashed, so that
// modes of the same family can be distinguished without colour.
func dashed(m Mode) string {
	return strings.TrimRight(" "+m.Spec().Line, " ")
}
