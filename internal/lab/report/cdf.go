package report

import (
	"fmt"
	"html/template"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Percentiles that the axis of the CDF names.
var cdfTicks = []float64{0, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99}

// tail stretches the axis of percentiles towards 100: each nine is as long as the one before.
func tail(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

// drawCDF shows the distribution of latency of each mode: time to the right on
// a log scale, percentiles upwards, stretched towards the tail.
func drawCDF(ev evidence, modes []Mode) template.HTML {
	type curve struct {
		mode   Mode
		points []point // µs, percentile
	}
	var curves []curve
	var all []float64
	for _, m := range modes {
		h := ev.pooled(m)
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		c := curve{mode: m, points: cdfPoints(h)}
		for _, p := range c.points {
			all = append(all, p.x)
		}
		curves = append(curves, c)
	}
	lo, hi, ok := around(all, true)
	if !ok {
		return ""
	}
	const width, height, left, right, top, bottom = 920, 460, 64, 20, 14, 46
	d := newDrawing(width, height, "Cumulative distribution of latency by mode")
	x := axis{lo: lo, hi: hi, begin: left, end: width - right, log: true}
	y := axis{lo: tail(0), hi: tail(99.99), begin: height - bottom, end: top}
	for _, p := range cdfTicks {
		at := y.at(tail(p))
		d.line(left, at, width-right, at, "grid")
		d.text(left-8, at+4, "tick end", fmt.Sprintf("%g %%", p))
	}
	for _, v := range x.ticks(10) {
		d.line(x.at(v), top, x.at(v), height-bottom, "grid")
		d.text(x.at(v), height-bottom+18, "tick middle", microseconds(v))
	}
	d.line(left, height-bottom, width-right, height-bottom, "axis")
	d.text((left+width-right)/2, height-6, "label middle", "latency, from the intended send time to the last byte (log scale)")
	for _, c := range curves {
		px := make([]point, len(c.points))
		for i, p := range c.points {
			px[i] = point{x.at(p.x), y.at(tail(p.y))}
		}
		d.path(px, "curve"+dashed(c.mode), colour(c.mode))
	}
	return d.html()
}

// cdfPoints walks up the axis in even steps, as far as ten requests lie above.
func cdfPoints(h *hdrhistogram.Histogram) []point {
	const steps = 240
	top := min(tail(99.99), math.Log10(max(float64(h.TotalCount())/10, 1.1)))
	points := make([]point, 0, steps+1)
	for i := 0; i <= steps; i++ {
		p := 100 * (1 - math.Pow(10, -top*float64(i)/steps))
		points = append(points, point{max(float64(h.ValueAtPercentile(p)), 1), p})
	}
	return points
}
