package chart

import (
	"fmt"
	"html/template"
)

// A Room is a row of a picture of pods that a scheduler places: how much it has for
// them, and which of them it has placed.
type Room struct {
	Name            string
	Style           string  // sets the colour of the row
	Capacity        float64 // that the scheduler has for these pods; 0: it counts nothing for them
	Each            float64 // what a pod asks for, in the unit of Capacity
	Placed, Created int     // pods; those that are not placed have found no room
	Text            string  // below the row
}

// A Panel shows a measure beside the rooms, with a strip for each of them.
type Panel struct {
	Label  string
	Format func(float64) string
	Strips []Strip // in the order of the rooms
}

// Rooms draws what a scheduler has placed, and beside it the panels. label is below the
// axis of the rooms.
func Rooms(title, label string, rooms []Room, panels []Panel) template.HTML {
	const width, left, bars, gap, top, bottom, row = 920, 96, 290, 30, 10, 44, 48
	height := top + bottom + row*float64(len(rooms))
	most := 0.0
	for _, r := range rooms {
		most = max(most, r.Capacity, r.Each*float64(r.Created))
	}
	if most <= 0 {
		return ""
	}
	middle := func(i int) float64 { return top + row*(float64(i)+0.5) }
	d := New(width, height, title)
	x := Axis{Low: 0, High: most, Begin: left, End: left + bars}
	for _, v := range x.Ticks(4) {
		d.Line(x.At(v), top, x.At(v), height-bottom, "grid")
		d.Text(x.At(v), height-bottom+18, "tick middle", fmt.Sprintf("%.4g", v))
	}
	d.Line(left, height-bottom, left+bars, height-bottom, "axis")
	d.Text(left, height-6, "label start", label)
	for i, r := range rooms {
		r.draw(d, x, middle(i))
	}
	begin, wide := float64(left+bars+gap), (width-left-bars-gap)/float64(max(len(panels), 1))
	for i, p := range panels {
		at := Axis{Begin: begin + wide*float64(i), End: begin + wide*float64(i+1) - gap, Log: true}
		p.draw(d, at, top, height-bottom, middle)
	}
	return d.HTML()
}

// draw draws a box for each pod, and the end of the capacity as a line.
func (r Room) draw(d *Drawing, x Axis, y float64) {
	d.Group(r.Style)
	d.Text(x.Begin-10, y+4, "name end", r.Name)
	for k := range r.Created {
		class, fate := "placed", "placed"
		if k >= r.Placed {
			class, fate = "unplaced", "no room"
		}
		from, to := x.At(r.Each*float64(k)), x.At(r.Each*float64(k+1))
		d.Rect(from+0.5, y-12, max(to-from-1, 0.5), 16, class, fmt.Sprintf("%s, pod %d: %s", r.Name, k+1, fate))
	}
	if r.Capacity > 0 {
		d.Line(x.At(r.Capacity), y-16, x.At(r.Capacity), y+8, "limit")
	}
	d.Text(x.Begin, y+18, "value start", r.Text)
	d.End()
}

// draw draws the strips on an axis of their own.
func (p Panel) draw(d *Drawing, x Axis, top, bottom float64, middle func(int) float64) {
	var ok bool
	if x.Low, x.High, ok = Range(Scale{}.extent(p.Strips), true); !ok {
		return
	}
	for _, v := range x.Ticks(3) {
		d.Line(x.At(v), top, x.At(v), bottom, "grid")
		d.Text(x.At(v), bottom+18, "tick middle", p.Format(v))
	}
	d.Line(x.Begin, bottom, x.End, bottom, "axis")
	d.Text(x.Begin, bottom+38, "label start", p.Label)
	for i, s := range p.Strips {
		if len(s.Dots) == 0 {
			continue
		}
		d.Group(s.Style)
		drawStrip(d, x, middle(i), s, p.Format)
		d.Text(x.Begin, middle(i)-14, "value start", p.Format(s.Estimate.Value))
		d.End()
	}
}
