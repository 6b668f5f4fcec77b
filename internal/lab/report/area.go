package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"time"
)

// drawCPU shows where the CPU time of one run went: BE at the bottom, so that
// its limit can be read against it, then LS, then all others.
func drawCPU(r Run, tested int) template.HTML {
	series := slices.Clone(r.Series)
	if len(series) < 2 {
		return ""
	}
	slices.SortStableFunc(series, func(a, b Sample) int { return cmp.Compare(a.At, b.At) })
	const width, height, left, right, top, bottom = 440, 190, 40, 12, 8, 34
	length := max(series[len(series)-1].At, time.Millisecond)
	d := newDrawing(width, height, "CPU over time in mode "+string(r.Mode))
	x := axis{lo: 0, hi: length.Seconds(), begin: left, end: width - right}
	y := axis{lo: 0, hi: float64(max(tested, 1)), begin: height - bottom, end: top}
	stack := func(upTo func(Sample) float64, class string) {
		points := []point{{x.at(0), y.at(0)}}
		for _, s := range series {
			points = append(points, point{x.at(max(s.At.Seconds(), 0)), y.at(min(max(upTo(s), 0), y.hi))})
		}
		d.path(append(points, point{x.at(length.Seconds()), y.at(0)}), "area "+class, "")
	}
	stack(func(s Sample) float64 { return s.BE + s.LS + s.Other }, "other")
	stack(func(s Sample) float64 { return s.BE + s.LS }, "ls")
	stack(func(s Sample) float64 { return s.BE }, "be")
	for _, v := range y.ticks(4) {
		d.line(left, y.at(v), width-right, y.at(v), "grid over")
		d.text(left-6, y.at(v)+4, "tick end", fmt.Sprintf("%.4g", v))
	}
	for _, v := range x.ticks(6) {
		d.text(x.at(v), height-bottom+16, "tick middle", fmt.Sprintf("%g s", v))
	}
	var limit []point
	for _, s := range series {
		if s.Limit > 0 && s.Limit <= y.hi {
			limit = append(limit, point{x.at(max(s.At.Seconds(), 0)), y.at(s.Limit)})
		}
	}
	d.path(limit, "limit", "")
	d.line(left, height-bottom, width-right, height-bottom, "axis")
	d.text(left, height-4, "label start", fmt.Sprintf("run %03d, CPUs of the tested set", r.Index))
	return d.html()
}
