package draw

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
	const width, left, top, bottom = 920, 72, 12, 44
	height, right := cmp.Or(c.Height, 320), cmp.Or(c.RightOfTheName, 120)
	d := New(width, height, c.Title)
	x := Axis{Low: xlo, High: xhi, Begin: left, End: width - right, Log: c.XLog}
	y := Axis{Low: ylo, High: yhi, Begin: height - bottom, End: top, Log: c.YLog}
	Frame(d, x, y, c.XText, c.YText, c.XLabel)
	for _, v := range c.Marks {
		d.Line(x.At(v), y.End, x.At(v), y.Begin, "mark")
	}
	for _, s := range all {
		drawSeries(d, x, y, s)
	}
	return d.HTML()
}

func drawSeries(d *Drawing, x, y Axis, s Series) {
	if len(s.Points) == 0 {
		return
	}
	d.Group(s.Style)
	places := make([]Point, len(s.Points))
	for i, p := range s.Points {
		places[i] = Point{x.At(p.X), y.At(p.Y)}
	}
	if s.Joined {
		line := slices.Clone(places)
		slices.SortStableFunc(line, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
		d.Path(line, "curve", "")
		last := line[len(line)-1]
		d.Text(last.X+8, last.Y+4, "name start", s.Name)
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
