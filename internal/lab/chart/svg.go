// Package chart makes SVG pictures: axes with round ticks, lines and areas, and
// rows of dots with their estimate. It knows nothing about the meaning of the
// data.
package chart

import (
	"fmt"
	"html"
	"html/template"
	"strings"
)

// A Drawing is an SVG picture that is not finished yet. The style sheet of the
// page sets colours and fonts, by classes and by the variable --c.
type Drawing struct {
	b             strings.Builder
	width, height float64
}

// New begins a picture. title is the text alternative for screen readers.
func New(width, height float64, title string) *Drawing {
	d := &Drawing{width: width, height: height}
	fmt.Fprintf(&d.b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
	return d
}

// HTML ends the picture.
func (d *Drawing) HTML() template.HTML { return template.HTML(d.b.String() + "</svg>") }

// Line draws a straight line.
func (d *Drawing) Line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&d.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// Rect draws a filled rectangle. It shows a title while the pointer is over it.
func (d *Drawing) Rect(x, y, w, h float64, class, title string) {
	fmt.Fprintf(&d.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s"><title>%s</title></rect>`, x, y, w, h, class, html.EscapeString(title))
}

// Text writes s at a point. class contains start, middle or end: the part of
// the text that lies at the point.
func (d *Drawing) Text(x, y float64, class, s string) {
	fmt.Fprintf(&d.b, `<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

// Path draws points as a line, or as an area if the style sheet fills the class.
func (d *Drawing) Path(points []Point, class, style string) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(&d.b, `<path class="%s" style="%s" d="`, class, style)
	for i, p := range points {
		fmt.Fprintf(&d.b, "%c%.1f %.1f", "ML"[min(i, 1)], p.X, p.Y)
	}
	d.b.WriteString(`"/>`)
}

// dot draws a point. It shows a title while the pointer is over it.
func (d *Drawing) dot(x, y, r float64, style, title string) {
	fmt.Fprintf(&d.b, `<circle cx="%.1f" cy="%.1f" r="%g" class="dot" style="%s"><title>%s</title></circle>`, x, y, r, style, html.EscapeString(title))
}

// Group opens a group with a style. End closes it.
func (d *Drawing) Group(style string) { fmt.Fprintf(&d.b, `<g style="%s">`, style) }

// End closes the group that was opened last.
func (d *Drawing) End() { d.b.WriteString("</g>") }

// A Point is a position in a picture, in pixels.
type Point struct{ X, Y float64 }
