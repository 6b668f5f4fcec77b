package chart

import (
	"fmt"
	"html/template"
)

// A Layer is an area of a Stack. Edge is its upper edge over time.
type Layer struct {
	Class string
	Edge  []Point // X in seconds, Y in the unit of the picture
}

// A Stack is a picture of areas over time, from the back to the front.
type Stack struct {
	Title  string  // text alternative for screen readers
	Label  string  // below the picture
	Length float64 // in seconds
	Most   float64 // upper end of the axis
	Layers []Layer
	Limit  []Point // a line above the areas; the part above Most is not drawn
}

// HTML returns the picture.
func (s Stack) HTML() template.HTML {
	const width, height, left, right, top, bottom = 440, 190, 40, 12, 8, 34
	d := New(width, height, s.Title)
	x := Axis{Low: 0, High: s.Length, Begin: left, End: width - right}
	y := Axis{Low: 0, High: s.Most, Begin: height - bottom, End: top}
	for _, l := range s.Layers {
		points := []Point{{x.At(0), y.At(0)}}
		for _, p := range l.Edge {
			points = append(points, Point{x.At(max(p.X, 0)), y.At(min(max(p.Y, 0), y.High))})
		}
		d.Path(append(points, Point{x.At(s.Length), y.At(0)}), "area "+l.Class, "")
	}
	for _, v := range y.Ticks(4) {
		d.Line(left, y.At(v), width-right, y.At(v), "grid over")
		d.Text(left-6, y.At(v)+4, "tick end", fmt.Sprintf("%.4g", v))
	}
	for _, v := range x.Ticks(6) {
		d.Text(x.At(v), height-bottom+16, "tick middle", fmt.Sprintf("%g s", v))
	}
	var limit []Point
	for _, p := range s.Limit {
		if p.Y <= y.High {
			limit = append(limit, Point{x.At(max(p.X, 0)), y.At(p.Y)})
		}
	}
	d.Path(limit, "limit", "")
	d.Line(left, height-bottom, width-right, height-bottom, "axis")
	d.Text(left, height-4, "label start", s.Label)
	return d.HTML()
}
