package chart

import (
	"cmp"
	"html/template"
	"slices"
)

// A Series is a set of points with a name and a style.
type Series struct {
	Name, Style string
	Points      []Point
	Titles      []string // shown when the pointer is over a point; may be empty
	Joined      bool     // a line joins the points in the order of X
}

// A Chart defines the axes of a picture of series.
type Chart struct {
	Title          string // text alternative for screen readers
	XLabel         string
	YLabel         string // stands above the vertical axis
	XText, YText   func(float64) string
	XLog, YLog     bool
	FromZero       bool      // the vertical axis begins at 0; not with YLog
	Marks          []float64 // vertical lines, such as the number of cores
	Height         float64   // 0: 320
	RightOfTheName float64   // room for the names of series behind their last point; 0: 120
}

// Scatter draws the points of all series on common axes.
func Scatter(all []Series, c Chart) template.HTML {
	var xs, ys []float64
	for _, s := range all {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	if c.FromZero {
		ys = append(ys, 0)
	}
	xlo, xhi, okX := Range(append(xs, c.Marks...), c.XLog)
	ylo, yhi, okY := Range(ys, c.YLog)
	if !okX || !okY || len(xs) == 0 {
		return ""
	}
	if c.FromZero {
		ylo = 0
	}
	const width, left, top, bottom = 920, 72, 26, 44
	height, right := cmp.Or(c.Height, 320), cmp.Or(c.RightOfTheName, 120)
	d := New(width, height, c.Title)
	x := Axis{Low: xlo, High: xhi, Begin: left, End: width - right, Log: c.XLog}
	y := Axis{Low: ylo, High: yhi, Begin: height - bottom, End: top, Log: c.YLog}
	Frame(d, x, y, c.XText, c.YText, c.XLabel)
	d.Text(8, top-12, "label start", c.YLabel)
	for _, v := range c.Marks {
		d.Line(x.At(v), y.End, x.At(v), y.Begin, "mark")
	}
	var names []label
	for i, s := range all {
		if len(s.Points) == 0 {
			continue
		}
		drawSeries(d, x, y, s)
		l := label{s.Name, s.Style, top + nameStep*(float64(i)+0.5)}
		if s.Joined {
			last := slices.MaxFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
			l.y = y.At(last.Y)
		}
		names = append(names, l)
	}
	drawNames(d, names, width-right+12, height-bottom)
	return d.HTML()
}

// A label is the name of a series, and the place where it should be.
type label struct {
	name, style string
	y           float64
}

// nameStep is the minimum distance between two names, in pixels.
const nameStep = 16

// drawNames writes the names of the series at the right, each with a dot in the
// colour of the series. Each name is near its place, but no two names overlap.
func drawNames(d *Drawing, names []label, x, bottom float64) {
	slices.SortStableFunc(names, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	for i := 1; i < len(names); i++ {
		names[i].y = max(names[i].y, names[i-1].y+nameStep)
	}
	for i, limit := len(names)-1, bottom; i >= 0; i, limit = i-1, limit-nameStep {
		names[i].y = min(names[i].y, limit)
	}
	for _, l := range names {
		d.Group(l.style)
		d.dot(x, l.y, 4, "", l.name)
		d.Text(x+9, l.y+4, "name start", l.name)
		d.End()
	}
}

func drawSeries(d *Drawing, x, y Axis, s Series) {
	d.Group(s.Style)
	places := make([]Point, len(s.Points))
	for i, p := range s.Points {
		places[i] = Point{x.At(p.X), y.At(p.Y)}
	}
	if s.Joined {
		line := slices.Clone(places)
		slices.SortStableFunc(line, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
		d.Path(line, "curve", "")
	}
	for i, p := range places {
		title := s.Name
		if i < len(s.Titles) {
			title = s.Titles[i]
		}
		d.dot(p.X, p.Y, 4, "", title)
	}
	d.End()
}
