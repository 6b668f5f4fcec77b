package report

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/stat"
)

// A strip is one row of a dot plot: a dot for each block, and the estimate
// over them with its interval.
type strip struct {
	mode     Mode
	dots     stat.Sample
	estimate stat.Estimate
}

// A scale says how the values of a dot plot are written.
type scale struct {
	title  string // for readers who do not see the picture
	label  string // under the axis
	format func(float64) string
	ends   func(e stat.Estimate) string // at the end of the row
	mark   []float64                    // lines across the rows, such as the baseline and the margin
	hi     float64                      // values above it become arrows; 0: none
}

// drawDots draws strips under one another on a common log axis.
func drawDots(strips []strip, s scale) template.HTML {
	strips = slices.DeleteFunc(slices.Clone(strips), func(s strip) bool { return len(s.dots) == 0 })
	lo, hi, ok := around(s.extent(strips), true)
	if !ok || len(strips) == 0 {
		return ""
	}
	const width, left, right, top, bottom, row = 920, 132, 190, 10, 44, 40
	height := top + bottom + row*float64(len(strips))
	d := newDrawing(width, height, s.title)
	x := axis{lo: lo, hi: hi, begin: left, end: width - right, log: true}
	for _, v := range dotTicks(x) {
		d.line(x.at(v), top, x.at(v), height-bottom, "grid")
		d.text(x.at(v), height-bottom+18, "tick middle", s.format(v))
	}
	for _, v := range s.mark {
		d.line(x.at(v), top, x.at(v), height-bottom, "mark")
	}
	d.line(left, height-bottom, width-right, height-bottom, "axis")
	d.text((left+width-right)/2, height-6, "label middle", s.label)
	for i, st := range strips {
		y := top + row*(float64(i)+0.5)
		d.group(st.mode)
		d.text(left-12, y+4, "name end", string(st.mode))
		d.text(width-right+14, y+4, "value start", s.ends(st.estimate))
		drawInterval(d, x, y+9, st.estimate)
		for k, block := range slices.Sorted(maps.Keys(st.dots)) {
			px, side := x.clamp(st.dots[block])
			if side != 0 {
				continue // the arrow of the interval says it
			}
			// A small ladder instead of chance keeps equal values apart.
			d.dot(px, y-7+float64(k%4)*3, 3, "", fmt.Sprintf("%s, block %d: %s", st.mode, block, s.format(st.dots[block])))
		}
		d.end()
	}
	return d.html()
}

// drawInterval draws the 95 % interval as a bar with the estimate on it, or an
// arrow where the estimate lies off the picture.
func drawInterval(d *drawing, x axis, y float64, e stat.Estimate) {
	if math.IsNaN(e.Value) {
		return
	}
	at, side := x.clamp(e.Value)
	if side != 0 {
		tip := at + float64(side)*8
		d.path([]point{{tip, y - 9}, {tip - float64(side)*10, y - 15}, {tip - float64(side)*10, y - 3}}, "estimate", "")
		return
	}
	if e.Blocks > 1 {
		from, below := x.clamp(e.Low)
		to, above := x.clamp(e.High)
		d.line(from, y, to, y, "interval")
		wide := to-from > 14 // else the diamond covers the ends
		if wide && below == 0 {
			d.line(from, y-4, from, y+4, "interval")
		}
		if wide && above == 0 {
			d.line(to, y-4, to, y+4, "interval")
		}
	}
	d.path([]point{{at, y - 5}, {at + 5, y}, {at, y + 5}, {at - 5, y}}, "estimate", "")
}

// extent collects the values that must be seen: all dots, and of the intervals
// no more than half as far again, lest the doubt of two blocks dwarf the rest.
func (s scale) extent(strips []strip) []float64 {
	values := slices.Clone(s.mark)
	for _, st := range strips {
		for _, v := range st.dots {
			if s.hi == 0 || v <= s.hi {
				values = append(values, v)
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	lo, hi := slices.Min(values)/1.5, slices.Max(values)*1.5
	for _, st := range strips {
		if e := st.estimate; e.Blocks > 0 && (s.hi == 0 || e.Value <= s.hi) {
			values = append(values, max(e.Low, lo), min(e.High, hi))
		}
	}
	return values
}

// dotTicks chooses round percentages on an axis that covers less than a factor
// of two, where the ticks of a log axis would be too few.
func dotTicks(x axis) []float64 {
	if x.hi/x.lo > 2 {
		return x.ticks(8)
	}
	linear := x
	linear.log = false
	return linear.ticks(9)
}
