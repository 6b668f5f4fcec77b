package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
)

const (
	pictureWidth  = 920
	pictureHeight = 300
	pictureLeft   = 64
	pictureRight  = 20
	pictureTop    = 14
	pictureBottom = 46
)

// drawHistogram counts times in ms on a log axis, ten bars to a decade.
func drawHistogram(m Mode, values []float64) template.HTML {
	const perDecade = 10
	bin := func(v float64) int { return int(math.Floor(math.Log10(max(v, 1e-3)) * perDecade)) }
	counts := map[int]int{}
	most := 0
	for _, v := range values {
		counts[bin(v)]++
		most = max(most, counts[bin(v)])
	}
	lo, hi, ok := around(append(slices.Clone(values), answerLimit), true)
	if !ok || most == 0 {
		return ""
	}
	d := newDrawing(pictureWidth, pictureHeight, "Histogram of the time from event to last write")
	x := axis{lo: math.Pow(10, math.Floor(math.Log10(lo)*perDecade)/perDecade), hi: hi, begin: pictureLeft, end: pictureWidth - pictureRight, log: true}
	y := axis{lo: 0, hi: float64(most), begin: pictureHeight - pictureBottom, end: pictureTop}
	frame(d, x, y, func(v float64) string { return fmt.Sprintf("%g ms", v) }, func(v float64) string { return fmt.Sprintf("%g", v) }, "ms (log scale)")
	d.group(m)
	for b, n := range counts {
		from, to := x.at(math.Pow(10, float64(b)/perDecade)), x.at(math.Pow(10, float64(b+1)/perDecade))
		top := y.at(float64(n))
		d.path([]point{{from + 1, y.begin}, {from + 1, top}, {to - 1, top}, {to - 1, y.begin}}, "estimate", "")
	}
	d.end()
	d.line(x.at(answerLimit), pictureTop, x.at(answerLimit), pictureHeight-pictureBottom, "mark")
	return d.html()
}

// drawShares draws the distribution of values in ms for each mode.
func drawShares(modes []Mode, of func(Mode) []float64) template.HTML {
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
	d := newDrawing(pictureWidth, pictureHeight, "How long the delay stayed raised, by mode")
	x := axis{lo: 0, hi: most, begin: pictureLeft, end: pictureWidth - pictureRight}
	y := axis{lo: 0, hi: 100, begin: pictureHeight - pictureBottom, end: pictureTop}
	frame(d, x, y, func(v float64) string { return fmt.Sprintf("%g ms", v) }, func(v float64) string { return fmt.Sprintf("%g %%", v) }, "time since the step began")
	for _, m := range modes {
		sorted := slices.Sorted(slices.Values(of(m)))
		points := []point{{x.at(0), y.at(0)}}
		for i, v := range sorted {
			if math.IsInf(v, 1) {
				break
			}
			share := 100 * float64(i) / float64(len(sorted))
			points = append(points, point{x.at(v), y.at(share)}, point{x.at(v), y.at(100 * float64(i+1) / float64(len(sorted)))})
		}
		d.path(points, "curve", colour(m))
	}
	return d.html()
}

// courseBin is the width, in µs, of what drawCourse takes together.
const courseBin = 10_000

// drawCourse draws the mean delay of the cycles by when they were due.
func drawCourse(modes []Mode, used map[Mode][]Step) template.HTML {
	curves := map[Mode][]point{}
	var long, most float64
	for _, m := range modes {
		var sums []float64
		var counts []int
		for _, s := range used[m] {
			for i, due := range s.Due {
				b := int(due / courseBin)
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
			p := point{(float64(b) + 0.5) * courseBin / 1000, sums[b] / float64(n)}
			curves[m] = append(curves[m], p)
			long, most = max(long, p.x), max(most, p.y)
		}
	}
	if long <= 0 || most <= 0 {
		return ""
	}
	d := newDrawing(pictureWidth, pictureHeight, "Mean delay of cycles along a step, by mode")
	x := axis{lo: 0, hi: long, begin: pictureLeft, end: pictureWidth - pictureRight}
	y := axis{lo: 0, hi: most, begin: pictureHeight - pictureBottom, end: pictureTop}
	frame(d, x, y, func(v float64) string { return fmt.Sprintf("%g ms", v) }, func(v float64) string { return fmt.Sprintf("%.3g ms", v) }, "time since the step began")
	for _, m := range modes {
		points := make([]point, len(curves[m]))
		for i, p := range curves[m] {
			points[i] = point{x.at(p.x), y.at(p.y)}
		}
		d.path(points, "curve", colour(m))
	}
	return d.html()
}

// frame draws the axes of a picture.
func frame(d *drawing, x, y axis, xText, yText func(float64) string, label string) {
	for _, v := range y.ticks(6) {
		d.line(x.begin, y.at(v), x.end, y.at(v), "grid")
		d.text(x.begin-8, y.at(v)+4, "tick end", yText(v))
	}
	for _, v := range x.ticks(10) {
		d.line(x.at(v), y.end, x.at(v), y.begin, "grid")
		d.text(x.at(v), y.begin+18, "tick middle", xText(v))
	}
	d.line(x.begin, y.begin, x.end, y.begin, "axis")
	d.text((x.begin+x.end)/2, pictureHeight-6, "label middle", label)
}
