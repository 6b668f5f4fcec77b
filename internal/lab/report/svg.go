package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// A drawing is an SVG picture under construction. Colours and fonts come from
// the style sheet of the page, through classes and the variable --c of a mode.
type drawing struct {
	b             strings.Builder
	width, height float64
}

func newDrawing(width, height float64, title string) *drawing {
	d := &drawing{width: width, height: height}
	fmt.Fprintf(&d.b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
	return d
}

func (d *drawing) html() template.HTML { return template.HTML(d.b.String() + "</svg>") }

func (d *drawing) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&d.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// text writes s at a point; class holds start, middle or end for the side.
func (d *drawing) text(x, y float64, class, s string) {
	fmt.Fprintf(&d.b, `<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

// path draws points as a line; an area closes it.
func (d *drawing) path(points []point, class, style string) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(&d.b, `<path class="%s" style="%s" d="`, class, style)
	for i, p := range points {
		fmt.Fprintf(&d.b, "%c%.1f %.1f", "ML"[min(i, 1)], p.x, p.y)
	}
	d.b.WriteString(`"/>`)
}

// dot draws a point that tells its value when pointed at.
func (d *drawing) dot(x, y, r float64, style, title string) {
	fmt.Fprintf(&d.b, `<circle cx="%.1f" cy="%.1f" r="%g" class="dot" style="%s"><title>%s</title></circle>`, x, y, r, style, html.EscapeString(title))
}

// group opens a group in the colour of a mode; end closes it.
func (d *drawing) group(m Mode) { fmt.Fprintf(&d.b, `<g style="%s">`, colour(m)) }
func (d *drawing) end()         { d.b.WriteString("</g>") }

type point struct{ x, y float64 }

// colour sets the variable --c to the colour of a mode. Modes that the style
// sheet does not know are drawn like text.
func colour(m Mode) string {
	return fmt.Sprintf("--c:var(--m-%s,currentColor)", html.EscapeString(string(m)))
}

// dashed tells modes of the same family apart without colour.
func dashed(m Mode) string {
	switch m {
	case ExclusiveAA:
		return " dash"
	case ExclusiveWarm:
		return " dots"
	case Default65, Tenon65, TenonWeight:
		return " dash"
	}
	return ""
}

// An axis maps values from lo to hi on pixels; log says whether ratios or
// differences keep their length.
type axis struct {
	lo, hi     float64
	begin, end float64
	log        bool
}

func (a axis) at(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return a.begin + (v-lo)/(hi-lo)*(a.end-a.begin)
}

// clamp returns the pixel of v, moved to the nearer end if v lies outside, and
// on which side it does.
func (a axis) clamp(v float64) (px float64, side int) {
	switch {
	case v < a.lo:
		return a.begin, -1
	case v > a.hi:
		return a.end, 1
	}
	return a.at(v), 0
}

// ticks returns round values on the axis, at most some n.
func (a axis) ticks(n int) []float64 {
	var all []float64
	if !a.log {
		step := niceStep((a.hi - a.lo) / float64(n))
		for i := math.Ceil(a.lo/step - 1e-9); i*step <= a.hi+step*1e-9; i++ {
			all = append(all, i*step+0) // + 0: no −0
		}
		return all
	}
	for _, mantissas := range [][]float64{{1, 1.5, 2, 3, 5, 7}, {1, 2, 5}, {1, 3}, {1}} {
		all = all[:0]
		for e := math.Floor(math.Log10(a.lo)); e <= math.Ceil(math.Log10(a.hi)); e++ {
			for _, m := range mantissas {
				if v := m * math.Pow(10, e); v >= a.lo*(1-1e-9) && v <= a.hi*(1+1e-9) {
					all = append(all, v)
				}
			}
		}
		if len(all) <= n {
			break
		}
	}
	return all
}

// niceStep rounds a step up to 1, 2 or 5 times a power of ten.
func niceStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if step <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// around widens the range of values a little; on a log axis by a factor.
func around(values []float64, log bool) (lo, hi float64, ok bool) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 {
			continue
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	if lo > hi {
		return 0, 0, false
	}
	if log {
		room := max(math.Pow(hi/lo, 0.05), 1.02)
		lo, hi = lo/room, hi*room
	} else {
		room := max((hi-lo)*0.05, 1e-9+math.Abs(hi)*0.02)
		lo, hi = lo-room, hi+room
	}
	// Values at the edge of what a float64 holds make no picture.
	ok = !math.IsInf(hi, 0) && lo < hi && (!log || lo > 1e-300 && !math.IsInf(hi/lo, 0))
	return lo, hi, ok
}
