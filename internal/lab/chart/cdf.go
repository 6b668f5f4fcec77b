package chart

import (
	"fmt"
	"html/template"
	"math"
)

// A CDF shows distributions. The x axis has a log scale. The y axis shows
// percentiles, and is stretched towards the tail: the percentiles 90, 99 and
// 99.9 have equal distances.
type CDF struct {
	Title, Label string
	Format       func(v float64) string // of a value on the x axis
	Curves       []Distribution
}

// A Distribution is one curve of a CDF.
type Distribution struct {
	Class, Style string
	Count        int64                            // number of values
	At           func(percentile float64) float64 // the value at a percentile
}

// cdfTicks are the percentiles with a label on the axis.
var cdfTicks = []float64{0, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99}

// tail returns the position of a percentile on the axis, which stretches the tail.
func tail(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

// points returns points at even steps of the percentile axis. The last
// percentile is the one above which only ten values lie.
func (c Distribution) points() []Point {
	const steps = 240
	top := min(tail(99.99), math.Log10(max(float64(c.Count)/10, 1.1)))
	points := make([]Point, 0, steps+1)
	for i := 0; i <= steps; i++ {
		p := 100 * (1 - math.Pow(10, -top*float64(i)/steps))
		points = append(points, Point{X: max(c.At(p), 1), Y: p})
	}
	return points
}

// HTML draws the picture. It returns "" if there is nothing to draw.
func (c CDF) HTML() template.HTML {
	curves := make([][]Point, len(c.Curves))
	var all []float64
	for i, curve := range c.Curves {
		curves[i] = curve.points()
		for _, p := range curves[i] {
			all = append(all, p.X)
		}
	}
	lo, hi, ok := Range(all, true)
	if !ok {
		return ""
	}
	const width, height, left, right, top, bottom = 920, 460, 64, 20, 14, 46
	d := New(width, height, c.Title)
	x := Axis{Low: lo, High: hi, Begin: left, End: width - right, Log: true}
	y := Axis{Low: tail(0), High: tail(99.99), Begin: height - bottom, End: top}
	for _, p := range cdfTicks {
		at := y.At(tail(p))
		d.Line(left, at, width-right, at, "grid")
		d.Text(left-8, at+4, "tick end", fmt.Sprintf("%g %%", p))
	}
	for _, v := range x.Ticks(10) {
		d.Line(x.At(v), top, x.At(v), height-bottom, "grid")
		d.Text(x.At(v), height-bottom+18, "tick middle", c.Format(v))
	}
	d.Line(left, height-bottom, width-right, height-bottom, "axis")
	d.Text((left+width-right)/2, height-6, "label middle", c.Label)
	for i, points := range curves {
		for k, p := range points {
			points[k] = Point{X: x.At(p.X), Y: y.At(tail(p.Y))}
		}
		d.Path(points, c.Curves[i].Class, c.Curves[i].Style)
	}
	return d.HTML()
}
