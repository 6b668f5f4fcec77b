package report

import (
	"fmt"
	"html/template"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/lab/draw"
)

// cdfTicks are the percentiles with a label on the axis of the CDF.
var cdfTicks = []float64{0, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99}

// tail maps a percentile to the axis. Each further nine (90, 99, 99.9) has the
// same length.
func tail(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

// drawCDF shows the latency distribution of each mode. The x axis is time on a
// log scale, and the y axis is percentiles, stretched towards the tail.
func drawCDF(ev Evidence, modes []Mode) template.HTML {
	type curve struct {
		mode   Mode
		points []draw.Point // µs, percentile
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
			all = append(all, p.X)
		}
		curves = append(curves, c)
	}
	lo, hi, ok := draw.Range(all, true)
	if !ok {
		return ""
	}
	const width, height, left, right, top, bottom = 920, 460, 64, 20, 14, 46
	d := draw.New(width, height, "Cumulative distribution of latency by mode")
	x := draw.Axis{Low: lo, High: hi, Begin: left, End: width - right, Log: true}
	y := draw.Axis{Low: tail(0), High: tail(99.99), Begin: height - bottom, End: top}
	for _, p := range cdfTicks {
		at := y.At(tail(p))
		d.Line(left, at, width-right, at, "grid")
		d.Text(left-8, at+4, "tick end", fmt.Sprintf("%g %%", p))
	}
	for _, v := range x.Ticks(10) {
		d.Line(x.At(v), top, x.At(v), height-bottom, "grid")
		d.Text(x.At(v), height-bottom+18, "tick middle", Microseconds(v))
	}
	d.Line(left, height-bottom, width-right, height-bottom, "axis")
	d.Text((left+width-right)/2, height-6, "label middle", "latency, from the intended send time to the last byte (log scale)")
	for _, c := range curves {
		px := make([]draw.Point, len(c.points))
		for i, p := range c.points {
			px[i] = draw.Point{X: x.At(p.X), Y: y.At(tail(p.Y))}
		}
		d.Path(px, "curve"+dashed(c.mode), Colour(c.mode))
	}
	return d.HTML()
}

// cdfPoints returns points at even steps of the percentile axis, up to the
// percentile above which ten requests lie.
func cdfPoints(h *hdrhistogram.Histogram) []draw.Point {
	const steps = 240
	top := min(tail(99.99), math.Log10(max(float64(h.TotalCount())/10, 1.1)))
	points := make([]draw.Point, 0, steps+1)
	for i := 0; i <= steps; i++ {
		p := 100 * (1 - math.Pow(10, -top*float64(i)/steps))
		points = append(points, draw.Point{X: max(float64(h.ValueAtPercentile(p)), 1), Y: p})
	}
	return points
}
