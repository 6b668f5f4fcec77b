package chart

import (
	"fmt"
	"html/template"
	"math"
)

// A HeatCell is one field of a heat map.
type HeatCell struct {
	Text  string  // the number in the field
	Value float64 // sets the shade; NaN: the field was not measured
	Title string  // shown when the pointer is over the field
}

// A HeatMap is a table of shaded fields. All fields have the same scale, so
// that a shade always means the same.
type HeatMap struct {
	Title          string // text alternative for screen readers
	XLabel, YLabel string
	Columns, Rows  []string
	Cells          [][]HeatCell // by row, then by column
	// Low and High are the ends of the scale, so that several maps can have the
	// same scale. If both are 0, the scale covers the values of the cells.
	Low, High float64
}

// Heat draws the fields. The lowest value is the lightest. The scale is
// logarithmic, so that equal ratios are equal steps of the shade. Each field
// also contains its number, for readers who cannot see the shades.
func Heat(m HeatMap) template.HTML {
	lo, hi := math.Inf(1), 0.0
	for _, row := range m.Cells {
		for _, c := range row {
			if c.Value > 0 && !math.IsInf(c.Value, 0) {
				lo, hi = min(lo, c.Value), max(hi, c.Value)
			}
		}
	}
	if hi == 0 {
		return ""
	}
	if m.High > 0 {
		lo, hi = m.Low, m.High
	}
	// The minimum width keeps the text of a small map as large as the text of
	// other maps.
	const left, top, bottom, wide, high, least = 92, 10, 44, 84, 34, 920
	d := New(max(left+wide*float64(len(m.Columns))+10, least), top+bottom+high*float64(len(m.Rows)), m.Title)
	for y, name := range m.Rows {
		d.Text(left-8, top+high*(float64(y)+0.5)+4, "tick end", name)
		for x := range m.Columns {
			drawField(d, left+wide*float64(x), top+high*float64(y), wide-2, high-2, m.Cells[y][x], lo, hi)
		}
	}
	for x, name := range m.Columns {
		d.Text(left+wide*(float64(x)+0.5), d.height-bottom+18, "tick middle", name)
	}
	d.Text(left+wide*float64(len(m.Columns))/2, d.height-6, "label middle", m.XLabel)
	d.Text(left-8, top+4, "label end", m.YLabel)
	return d.HTML()
}

func drawField(d *Drawing, x, y, w, h float64, c HeatCell, lo, hi float64) {
	if !(c.Value > 0) || math.IsInf(c.Value, 0) {
		d.Line(x, y+h, x+w, y, "grid") // not measured
		return
	}
	shade := 0.0
	if hi > lo {
		shade = math.Log(c.Value/lo) / math.Log(hi/lo)
	}
	d.Group(fmt.Sprintf("--s:%.2f", shade))
	d.Rect(x, y, w, h, "heat", c.Title)
	class := "heat-light middle"
	if shade > 0.5 {
		class = "heat-dark middle"
	}
	d.Text(x+w/2, y+h/2+4, class, c.Text)
	d.End()
}
