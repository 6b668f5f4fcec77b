package chart

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/stat"
)

// A Strip is one row of a dot plot. It has a dot for each block, and the
// estimate over all blocks with its interval.
type Strip struct {
	Name     string
	Style    string // sets the colour of the row
	Dots     stat.Sample
	Estimate stat.Estimate
}

// A Scale defines how a dot plot prints its values.
type Scale struct {
	Title  string // text alternative for screen readers
	Label  string // under the axis
	Format func(float64) string
	Ends   func(e stat.Estimate) string // text at the end of a row; nil: the value, by Format
	Mark   []float64                    // lines across all rows, such as the baseline and the margin
	Most   float64                      // larger values are drawn as arrows; 0: no limit
}

// Dots draws the strips below each other on a common log axis.
func Dots(strips []Strip, s Scale) template.HTML {
	if s.Ends == nil {
		s.Ends = func(e stat.Estimate) string { return s.Format(e.Value) }
	}
	strips = slices.DeleteFunc(slices.Clone(strips), func(s Strip) bool { return len(s.Dots) == 0 })
	lo, hi, ok := Range(s.extent(strips), true)
	if !ok || len(strips) == 0 {
		return ""
	}
	const width, left, right, top, bottom, row = 920, 132, 190, 10, 44, 40
	height := top + bottom + row*float64(len(strips))
	d := New(width, height, s.Title)
	x := Axis{Low: lo, High: hi, Begin: left, End: width - right, Log: true}
	for _, v := range dotTicks(x) {
		d.Line(x.At(v), top, x.At(v), height-bottom, "grid")
		d.Text(x.At(v), height-bottom+18, "tick middle", s.Format(v))
	}
	for _, v := range s.Mark {
		d.Line(x.At(v), top, x.At(v), height-bottom, "mark")
	}
	d.Line(left, height-bottom, width-right, height-bottom, "axis")
	d.Text((left+width-right)/2, height-6, "label middle", s.Label)
	for i, st := range strips {
		y := top + row*(float64(i)+0.5)
		d.Group(st.Style)
		d.Text(left-12, y+4, "name end", st.Name)
		d.Text(width-right+14, y+4, "value start", s.Ends(st.Estimate))
		drawStrip(d, x, y, st, s.Format)
		d.End()
	}
	return d.HTML()
}

// drawStrip draws the dots of a strip, and its estimate below them.
func drawStrip(d *Drawing, x Axis, y float64, st Strip, format func(float64) string) {
	drawInterval(d, x, y+9, st.Estimate)
	for k, block := range slices.Sorted(maps.Keys(st.Dots)) {
		px, side := x.clamp(st.Dots[block])
		if side != 0 {
			continue // the arrow of the interval already shows it
		}
		// Dots are at four heights in turn, so that dots with equal values
		// do not overlap.
		d.dot(px, y-7+float64(k%4)*3, 3, "", fmt.Sprintf("%s, block %d: %s", st.Name, block, format(st.Dots[block])))
	}
}

// drawInterval draws the 95 % interval as a bar, and the estimate as a diamond.
// If the estimate lies outside the picture, it draws an arrow.
func drawInterval(d *Drawing, x Axis, y float64, e stat.Estimate) {
	if math.IsNaN(e.Value) {
		return
	}
	at, side := x.clamp(e.Value)
	if side != 0 {
		tip := at + float64(side)*8
		d.Path([]Point{{tip, y - 9}, {tip - float64(side)*10, y - 15}, {tip - float64(side)*10, y - 3}}, "estimate", "")
		return
	}
	if e.Blocks > 1 {
		from, below := x.clamp(e.Low)
		to, above := x.clamp(e.High)
		d.Line(from, y, to, y, "interval")
		wide := to-from > 14 // otherwise the diamond covers the ends
		if wide && below == 0 {
			d.Line(from, y-4, from, y+4, "interval")
		}
		if wide && above == 0 {
			d.Line(to, y-4, to, y+4, "interval")
		}
	}
	d.Path([]Point{{at, y - 5}, {at + 5, y}, {at, y + 5}, {at - 5, y}}, "estimate", "")
}

// extent returns the values that the axis must cover: all dots and all
// intervals. It cuts an interval at a factor of 1.5 beyond the dots. If the
// axis covered the whole of a wide interval, everything else would be small.
func (s Scale) extent(strips []Strip) []float64 {
	values := slices.Clone(s.Mark)
	for _, st := range strips {
		for _, v := range st.Dots {
			if s.Most == 0 || v <= s.Most {
				values = append(values, v)
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	lo, hi := slices.Min(values)/1.5, slices.Max(values)*1.5
	for _, st := range strips {
		if e := st.Estimate; e.Blocks > 0 && (s.Most == 0 || e.Value <= s.Most) {
			values = append(values, max(e.Low, lo), min(e.High, hi))
		}
	}
	return values
}

// dotTicks returns round percentages for an axis that covers less than a factor
// of two. A log axis has too few ticks for that.
func dotTicks(x Axis) []float64 {
	if x.High/x.Low > 2 {
		return x.Ticks(8)
	}
	linear := x
	linear.Log = false
	return linear.Ticks(9)
}
