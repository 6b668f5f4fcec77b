package reaction

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/report"
)

const (
	pictureWidth  = 920
	pictureHeight = 300
	pictureLeft   = 64
	pictureRight  = 20
	pictureTop    = 14
	pictureBottom = 46
)

// drawHistogram draws a histogram of times in ms on a log axis, with ten bars
// per decade.
func drawHistogram(m report.Mode, values []float64) template.HTML {
	const perDecade = 10
	bin := func(v float64) int { return int(math.Floor(math.Log10(max(v, 1e-3)) * perDecade)) }
	counts := map[int]int{}
	most := 0
	for _, v := range values {
		counts[bin(v)]++
		most = max(most, counts[bin(v)])
	}
	lo, hi, ok := chart.Range(append(slices.Clone(values), answerLimit), true)
	if !ok || most == 0 {
		return ""
	}
	d := chart.New(pictureWidth, pictureHeight, "Histogram of the time from event to last write")
	x := chart.Axis{Low: math.Pow(10, math.Floor(math.Log10(lo)*perDecade)/perDecade), High: hi, Begin: pictureLeft, End: pictureWidth - pictureRight, Log: true}
	y := chart.Axis{Low: 0, High: float64(most), Begin: pictureHeight - pictureBottom, End: pictureTop}
	chart.Frame(d, x, y, func(v float64) string { return fmt.Sprintf("%g ms", v) }, func(v float64) string { return fmt.Sprintf("%g", v) }, "ms (log scale)")
	d.Group(report.Colour(m))
	for _, b := range slices.Sorted(maps.Keys(counts)) {
		from, to := x.At(math.Pow(10, float64(b)/perDecade)), x.At(math.Pow(10, float64(b+1)/perDecade))
		top := y.At(float64(counts[b]))
		d.Path([]chart.Point{{X: from + 1, Y: y.Begin}, {X: from + 1, Y: top}, {X: to - 1, Y: top}, {X: to - 1, Y: y.Begin}}, "estimate", "")
	}
	d.End()
	d.Line(x.At(answerLimit), pictureTop, x.At(answerLimit), pictureHeight-pictureBottom, "mark")
	return d.HTML()
}

// drawShares draws the distribution of values in ms for each mode.
func drawShares(modes []report.Mode, of func(report.Mode) []float64) template.HTML {
	most := 0.0
	for _, m := range modes {
		for _, v := range of(m) {
			if !math.IsInf(v, 1) {
				most = max(most, v)
			}
		}
	}
	if most <= 0 {
		return ""
	}
	d := chart.New(pictureWidth, pictureHeight, "How long the delay stayed raised, by mode")
	x := chart.Axis{Low: 0, High: most, Begin: pictureLeft, End: pictureWidth - pictureRight}
	y := chart.Axis{Low: 0, High: 100, Begin: pictureHeight - pictureBottom, End: pictureTop}
	chart.Frame(d, x, y, func(v float64) string { return fmt.Sprintf("%g ms", v) }, func(v float64) string { return fmt.Sprintf("%g %%", v) }, "time since the step began")
	for _, m := range modes {
		sorted := slices.Sorted(slices.Values(of(m)))
		points := []chart.Point{{X: x.At(0), Y: y.At(0)}}
		for i, v := range sorted {
			if math.IsInf(v, 1) {
				break
			}
			share := 100 * float64(i) / float64(len(sorted))
			points = append(points, chart.Point{X: x.At(v), Y: y.At(share)}, chart.Point{X: x.At(v), Y: y.At(100 * float64(i+1) / float64(len(sorted)))})
		}
		d.Path(points, "curve", report.Colour(m))
	}
	return d.HTML()
}

// shareBin is the width in µs of one bin of drawShareOverTime.
const shareBin = 10_000

// drawShareOverTime draws the mean delay of cycles as a function of their due
// time.
func drawShareOverTime(modes []report.Mode, used map[report.Mode][]Step) template.HTML {
	curves := map[report.Mode][]chart.Point{}
	var long, most float64
	for _, m := range modes {
		var sums []float64
		var counts []int
		for _, s := range used[m] {
			for i, due := range s.Due {
				b := int(due / shareBin)
				for len(sums) <= b {
					sums, counts = append(sums, 0), append(counts, 0)
				}
				sums[b] += float64(s.Delays[i]) / 1000
				counts[b]++
			}
		}
		for b, n := range counts {
			if n == 0 {
				continue
			}
			p := chart.Point{X: (float64(b) + 0.5) * shareBin / 1000, Y: sums[b] / float64(n)}
			curves[m] = append(curves[m], p)
			long, most = max(long, p.X), max(most, p.Y)
		}
	}
	if long <= 0 || most <= 0 {
		return ""
	}
	d := chart.New(pictureWidth, pictureHeight, "Mean delay of cycles along a step, by mode")
	x := chart.Axis{Low: 0, High: long, Begin: pictureLeft, End: pictureWidth - pictureRight}
	y := chart.Axis{Low: 0, High: most, Begin: pictureHeight - pictureBottom, End: pictureTop}
	chart.Frame(d, x, y, func(v float64) string { return fmt.Sprintf("%g ms", v) }, func(v float64) string { return fmt.Sprintf("%.3g ms", v) }, "time since the step began")
	for _, m := range modes {
		points := make([]chart.Point, len(curves[m]))
		for i, p := range curves[m] {
			points[i] = chart.Point{X: x.At(p.X), Y: y.At(p.Y)}
		}
		d.Path(points, "curve", report.Colour(m))
	}
	return d.HTML()
}
