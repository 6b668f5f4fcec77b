package cpumap

import (
	"fmt"
	"html"
	"strings"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/model/unit"
)

// The sizes of the picture, in pixels.
const (
	side     = 22 // side of the square of a CPU
	gap      = 4  // gap between cores
	inset    = 10 // distance between a part and the part that contains it
	title    = 20 // height of the heading of a part
	wide     = 1020
	coresRow = 8
)

// A picture is an unfinished SVG picture of a Map.
type picture struct {
	*Map
	b strings.Builder
}

// SVG draws the map as one picture that needs no other file. Sockets contain
// NUMA nodes, NUMA nodes contain L3 caches, and L3 caches contain cores. The
// CPUs of a core are above each other. The list of owners is below the picture.
func (m *Map) SVG() string {
	p := &picture{Map: m}
	y := 46.0
	for _, s := range m.sockets {
		_, h := p.box(s, inset, y)
		y += h + inset
	}
	y = p.list(y + 18)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-label="%s" font-family="system-ui, sans-serif" font-size="12">
<defs><pattern id="reserved" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff"/><rect width="2.5" height="6" fill="#b4b4b4"/></pattern></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="%d" y="28" font-size="16" font-weight="600">%s</text>
%s</svg>
`, wide, y, wide, y, "CPUs of "+html.EscapeString(m.node), inset, html.EscapeString(m.heading()), p.b.String())
}

// HTML returns a page with the picture.
func (m *Map) HTML() string {
	return fmt.Sprintf(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>CPUs of %s</title>
<style>body{margin:1rem;background:#fff}svg{max-width:100%%;height:auto}</style>
%s</html>
`, html.EscapeString(m.node), m.SVG())
}

// size returns the width and height of a part.
func (p *picture) size(a *part) (w, h float64) {
	if a.level == pick.L3 {
		most := 0
		for _, core := range a.cores {
			most = max(most, core.Len())
		}
		lines := (len(a.cores) + coresRow - 1) / coresRow
		w = float64(min(len(a.cores), coresRow)*(side+gap)-gap) + 2*inset
		if n := len(a.pools); n > 0 { // the heading contains the names of these pods
			w = max(w, float64(145+46*n))
		}
		return max(w, 150), title + float64(lines*(most*side+gap)) + inset
	}
	w, h, _ = p.flow(a)
	return w, h
}

// flow arranges the parts of a part in lines, and returns the position of each
// part (at).
func (p *picture) flow(a *part) (w, h float64, at [][2]float64) {
	room := float64(wide - 2*inset)
	if a.level == pick.NUMA {
		room -= 2 * inset
	}
	x, y, line := float64(inset), float64(title+4), 0.0
	for _, below := range a.parts {
		bw, bh := p.size(below)
		if x > inset && x+bw+inset > room {
			x, y, line = inset, y+line+inset, 0
		}
		at = append(at, [2]float64{x, y})
		x, line = x+bw+inset, max(line, bh)
		w = max(w, x)
	}
	return w, y + line + inset, at
}

// box draws a part and all parts within it.
func (p *picture) box(a *part, x, y float64) (w, h float64) {
	w, h = p.size(a)
	fill := map[pick.Level]string{pick.Socket: "#eceef1", pick.NUMA: "#f6f7f9", pick.L3: "#ffffff"}[a.level]
	fmt.Fprintf(&p.b, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="5" fill="%s" stroke="#c3c8cf"/>`, x, y, w, h, fill)
	p.heading(a, x, y)
	if a.level == pick.L3 {
		p.cores(a, x+inset, y+title)
		return w, h
	}
	_, _, at := p.flow(a)
	for i, below := range a.parts {
		p.box(below, x+at[i][0], y+at[i][1])
	}
	return w, h
}

// heading writes the name of a part, and the pods that share its open CPUs.
func (p *picture) heading(a *part, x, y float64) {
	fmt.Fprintf(&p.b, `<text x="%.0f" y="%.0f">%s <tspan fill="#5b626b">%d of %d open</tspan>`, x+inset, y+15, html.EscapeString(a.name), p.countOpen(a), a.cpus.Len())
	for _, o := range a.pools {
		fmt.Fprintf(&p.b, `<tspan dx="6" font-weight="600" fill="%s">pool %s<title>pool of %s</title></tspan>`, o.ink(), o.mark, html.EscapeString(o.Name))
	}
	p.b.WriteString("</text>\n")
}

// cores draws the CPUs of an L3 cache.
func (p *picture) cores(a *part, x, y float64) {
	most := 0
	for _, core := range a.cores {
		most = max(most, core.Len())
	}
	for i, core := range a.cores {
		cx := x + float64(i%coresRow*(side+gap))
		cy := y + float64(i/coresRow*(most*side+gap))
		for c := range core.All() {
			p.cpu(c, cx, cy)
			cy += side
		}
	}
}

// cpu draws one CPU: filled with the colour of the pod that owns it, or framed
// if pods have seats on it.
func (p *picture) cpu(c unit.CPU, x, y float64) {
	at := p.cells[c]
	fill, stroke, ink, what := "#ffffff", "#c3c8cf", "#9aa1a9", "open"
	mark := p.mark(c)
	switch {
	case at.owner != nil:
		fill, stroke, ink, what = at.owner.fill(), at.owner.ink(), at.owner.ink(), at.owner.Name
	case at.reserved:
		fill, mark, what = "url(#reserved)", "", "reserved"
	case len(at.seats) > 0:
		var names []string
		for _, o := range at.seats {
			names = append(names, o.Name)
		}
		stroke, ink, what = at.seats[0].ink(), at.seats[0].ink(), "seats of "+strings.Join(names, ", ")
	default:
		mark = fmt.Sprint(c)
	}
	size := 11
	if len(mark) > 2 {
		size = 8
	}
	fmt.Fprintf(&p.b, `<g><title>CPU %d: %s</title><rect x="%.1f" y="%.1f" width="%d" height="%d" fill="%s" stroke="%s"/><text x="%.1f" y="%.1f" font-size="%d" text-anchor="middle" fill="%s">%s</text></g>`,
		c, html.EscapeString(what), x+0.5, y+0.5, side-1, side-1, fill, stroke, x+side/2, y+side/2+4, size, ink, html.EscapeString(mark))
}

// list lists the owners below the picture. It returns the y coordinate of the
// end of the list.
func (p *picture) list(y float64) float64 {
	const line = 22
	for i := range p.owners {
		o := &p.owners[i]
		fill := "#ffffff"
		if o.Hold.Grade == pick.Own {
			fill = o.fill()
		}
		fmt.Fprintf(&p.b, `<rect x="%d.5" y="%.1f" width="%d" height="16" fill="%s" stroke="%s"/><text x="%d" y="%.0f" font-size="11" text-anchor="middle" fill="%s">%s</text><text x="%d" y="%.0f">%v</text><text x="%d" y="%.0f"><tspan font-weight="600">%s</tspan>  %s</text>`+"\n",
			inset, y-12.5, side-1, fill, o.ink(), inset+side/2, y, o.ink(), o.mark, inset+side+8, y, o.Hold.Grade, inset+side+52, y,
			html.EscapeString(o.Name), html.EscapeString(p.describe(o)))
		y += line
	}
	for _, l := range p.legend() {
		mark := l[0]
		switch mark {
		case markOpen:
			mark = "7"
		case markReserved:
			mark = ""
		}
		fill := "#ffffff"
		if l[0] == markReserved {
			fill = "url(#reserved)"
		}
		fmt.Fprintf(&p.b, `<rect x="%d.5" y="%.1f" width="%d" height="16" fill="%s" stroke="#c3c8cf"/><text x="%d" y="%.0f" font-size="11" text-anchor="middle" fill="#9aa1a9">%s</text><text x="%d" y="%.0f">%s</text>`+"\n",
			inset, y-12.5, side-1, fill, inset+side/2, y, mark, inset+side+8, y, l[1])
		y += line
	}
	return y
}

// hue returns the colour of an owner. The golden angle distributes the colours
// over the colour circle. Two colours may still look alike, so each CPU also
// shows its mark.
func (o *Owner) hue() int {
	n := 0
	for _, r := range o.mark {
		n = n*26 + int(r-'A')%32
	}
	n *= 2
	if o.Hold.Grade != pick.Own {
		n++
	}
	return (n*137 + 210) % 360
}

func (o *Owner) fill() string { return fmt.Sprintf("hsl(%d,70%%,82%%)", o.hue()) }

func (o *Owner) ink() string { return fmt.Sprintf("hsl(%d,75%%,26%%)", o.hue()) }
