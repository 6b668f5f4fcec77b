package cpumap

import (
	"fmt"
	"html"
	"strings"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// The sizes of the picture, in its own units.
const (
	cellWidth  = 26.0
	cellHeight = 34.0
	frame      = 2.0  // distance between the CPUs of a core and its frame
	gap        = 4.0  // distance between cores
	inset      = 8.0  // distance between a part and the part that contains it
	lineHeight = 17.0 // of text
	margin     = 12.0
	least      = 720.0  // width of a picture of few CPUs, so that the legend has room
	most       = 1260.0 // width of a picture of many CPUs
	mostHead   = 320.0  // width of a heading before it gets a second line
	barHeight  = 4.0
)

// A box is a part with its place in the picture.
type box struct {
	*part
	x, y, w, h float64
	head       [][]span
	boxes      []*box
}

// A span is a piece of text of one style.
type span struct {
	text, class string
	bold        bool
}

func (s span) width() float64 { return measure(s.text, 12, s.bold) }

// measure returns an upper bound of the width of a text in the usual fonts.
// Verdana and DejaVu Sans are the widest of them.
func measure(text string, size float64, bold bool) float64 {
	sum := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune("mMWw@%", r):
			sum += 1.03
		case strings.ContainsRune("ijlItfr.,:;|!'()/- ", r):
			sum += 0.46
		case r >= 'A' && r <= 'Z':
			sum += 0.80
		case r < 128:
			sum += 0.66
		default:
			sum++
		}
	}
	if bold {
		sum *= 1.1
	}
	return sum * size
}

func measurePlain(text string) float64 { return measure(text, 12, false) }

func measureBold(text string) float64 { return measure(text, 12, true) }

// A picture is an unfinished SVG picture of a Map.
type picture struct {
	*Map
	b strings.Builder
}

// SVG draws the map as one picture that needs no other file. Sockets contain
// NUMA nodes, NUMA nodes contain L3 caches, and L3 caches contain cores. The
// CPUs of a core are above each other in a frame. The legend is at the bottom.
// The picture fills the available width, up to its natural size, and follows
// the colour scheme of the reader. Each CPU has a hover text.
func (m *Map) SVG() string {
	p := &picture{Map: m}
	root := &box{part: &part{parts: m.sockets}}
	p.arrange(root, most-2*margin)
	width := max(least, root.w+2*margin)
	y := p.heading(width)
	for _, b := range root.boxes {
		p.box(b, margin, y)
	}
	y = p.list(y+root.h+margin, width)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="100%%" style="max-width:%.0fpx;height:auto" preserveAspectRatio="xMinYMin" role="img" aria-labelledby="map-title map-desc" font-family="system-ui, sans-serif" font-size="12">
<title id="map-title">%s</title>
<desc id="map-desc">%s</desc>
<style>%s</style>
<rect class="page" width="100%%" height="100%%"/>
%s</svg>
`, width, y, width, html.EscapeString(m.title()), html.EscapeString(m.alternative()), m.svgStyle(), p.b.String())
}

// svgStyle returns the style sheet of the picture. It has no variables, because
// some viewers do not support them.
func (m *Map) svgStyle() string {
	rules := func(s scheme) string {
		var b strings.Builder
		fmt.Fprintf(&b, "svg{background:%v}text{fill:%v}.dim{fill:%v}.page{fill:%v}.bars{fill:%v}", s.page, s.ink, s.dim, s.page, s.ink)
		fmt.Fprintf(&b, ".socket{fill:%v;stroke:%v}.numa{fill:%v;stroke:%v}.l3{fill:%v;stroke:%v}", s.socket, s.line, s.numa, s.line, s.l3, s.line)
		fmt.Fprintf(&b, ".core{fill:none;stroke:%v}.cpu{fill:%v;stroke:%v}.many{fill:%v;stroke:%v}.reserved{fill:%v;stroke:%v}", s.line, s.l3, s.line, s.l3, s.ink, s.reserved, s.line)
		for i := range m.owners {
			o := &m.owners[i]
			hue := o.hue()
			fmt.Fprintf(&b, "\n.%s{fill:%v;stroke:%v}.%s{fill:%v;stroke:%v}.%s{fill:%v}.%s{fill:%v}", o.class("f"), s.fill.of(hue), s.edge.of(hue),
				o.class("e"), s.l3, s.edge.of(hue), o.class("b"), s.edge.of(hue), o.class("t"), s.text.of(hue))
		}
		return b.String()
	}
	seats := []string{".many"}
	for i := range m.owners {
		seats = append(seats, "."+m.owners[i].class("e"))
	}
	return fmt.Sprintf("\n.n{font-size:10px;text-anchor:middle}.m{font-size:13px;font-weight:700;text-anchor:middle}.m2{font-size:11px}.m3{font-size:8px}.b{font-weight:700}.h{font-size:16px;font-weight:700}%s{stroke-width:2}\n%s\n@media (prefers-color-scheme:dark){\n%s\n}\n",
		strings.Join(seats, ","), rules(light), rules(dark))
}

// heading writes the facts above the picture. It returns the y coordinate below
// them.
func (p *picture) heading(width float64) float64 {
	y := margin + 14
	line := func(text, class string) {
		fmt.Fprintf(&p.b, `<text x="%.0f" y="%.0f" class="%s">%s</text>`+"\n", margin, y, class, html.EscapeString(text))
		y += lineHeight
	}
	for _, text := range wrap(p.title(), width-2*margin, func(s string) float64 { return measure(s, 16, true) }) {
		line(text, "h")
	}
	facts := p.summary()
	if len(p.pools) > 0 {
		facts += poolsOf("pool", p.pools)
	}
	for i, fact := range append([]string{facts}, p.state()...) {
		for _, text := range wrap(fact, width-2*margin, measurePlain) {
			line(text, map[bool]string{true: "fact", false: "dim"}[i == 0])
		}
	}
	return y
}

// arrange sets the size and place of a part and of all parts in it. room is the
// maximum width.
func (p *picture) arrange(b *box, room float64) {
	inner := room - 2*inset
	if b.level == cpus.L3 {
		columns := widthOf(len(b.cores))
		b.w, b.h = 0, 0
		for i := range b.cores {
			if i%columns == 0 {
				b.h += p.rowHeight(b.cores[i:min(i+columns, len(b.cores))]) + gap
			}
		}
		b.w = float64(min(len(b.cores), columns))*(cellWidth+2*frame+gap) - gap
	} else {
		x, y, line, begun := 0.0, 0.0, 0.0, 0
		level := func() { // makes the boxes of a line equally high
			for _, c := range b.boxes[begun:] {
				c.h = line
			}
			begun = len(b.boxes)
		}
		for _, below := range b.parts {
			c := &box{part: below}
			p.arrange(c, inner)
			if x > 0 && x+c.w > inner {
				level()
				x, y, line = 0, y+line+inset, 0
			}
			c.x, c.y = x, y
			b.w, line = max(b.w, x+c.w), max(line, c.h)
			x += c.w + inset
			b.boxes = append(b.boxes, c)
		}
		level()
		b.h = y + line
	}
	if b.name == "" { // all sockets
		return
	}
	spans := []span{{b.name, "", false}, {p.room(b.part), "dim", false}}
	for _, o := range b.pools {
		spans = append(spans, span{badge("pool", o), o.class("t"), true})
	}
	for _, o := range b.grown {
		spans = append(spans, span{badge("grown pool", o), o.class("t"), true})
	}
	b.w = max(b.w, min(widthOfLine(spans), mostHead))
	b.head = flow(spans, b.w)
	for _, line := range b.head {
		b.w = max(b.w, widthOfLine(line))
	}
	b.w, b.h = b.w+2*inset, b.h+float64(len(b.head))*lineHeight+2*inset
}

// flow divides spans into lines.
func flow(spans []span, width float64) [][]span {
	var lines [][]span
	var line []span
	for _, s := range spans {
		if len(line) > 0 && widthOfLine(append(line, s)) > width {
			lines, line = append(lines, line), nil
		}
		line = append(line[:len(line):len(line)], s)
	}
	return append(lines, line)
}

func widthOfLine(line []span) float64 {
	sum := 0.0
	for i, s := range line {
		if i > 0 {
			sum += gap
		}
		sum += s.width()
	}
	return sum
}

func (p *picture) rowHeight(cores []unit.CPUSet) float64 {
	n := 0
	for _, core := range cores {
		n = max(n, core.Len())
	}
	return float64(n)*cellHeight + 2*frame
}

// box draws a part and all parts within it.
func (p *picture) box(b *box, x, y float64) {
	x, y = x+b.x, y+b.y
	class := map[cpus.Level]string{cpus.Socket: "socket", cpus.NUMA: "numa", cpus.L3: "l3"}[b.level]
	fmt.Fprintf(&p.b, `<rect class="%s" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="5"/>`+"\n", class, x+0.5, y+0.5, b.w, b.h)
	x, y = x+inset, y+inset
	for _, line := range b.head {
		fmt.Fprintf(&p.b, `<text x="%.0f" y="%.0f">`, x, y+10)
		for i, s := range line {
			space := ""
			if i > 0 {
				space = fmt.Sprintf(` dx="%.0f"`, gap)
			}
			weight := ""
			if s.bold {
				weight = " b"
			}
			fmt.Fprintf(&p.b, `<tspan class="%s%s"%s>%s</tspan>`, s.class, weight, space, html.EscapeString(s.text))
		}
		p.b.WriteString("</text>\n")
		y += lineHeight
	}
	for _, below := range b.boxes {
		p.box(below, x, y)
	}
	if b.level == cpus.L3 {
		p.cores(b.cores, x, y)
	}
}

// cores draws the CPUs of an L3 cache.
func (p *picture) cores(cores []unit.CPUSet, x, y float64) {
	columns := widthOf(len(cores))
	for len(cores) > 0 {
		row := cores[:min(columns, len(cores))]
		cores = cores[len(row):]
		for i, core := range row {
			cx, cy := x+float64(i)*(cellWidth+2*frame+gap), y
			fmt.Fprintf(&p.b, `<rect class="core" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="4"/>`, cx+0.5, cy+0.5, cellWidth+2*frame-1, float64(core.Len())*cellHeight+2*frame-1)
			cy += frame
			for c := range core.All() {
				fmt.Fprintf(&p.b, `<g><title>CPU %d: %s</title>`, c, html.EscapeString(p.use(c)))
				l := p.look(c)
				p.square(l, cx+frame, cy, cellHeight)
				fmt.Fprintf(&p.b, `<text class="n %s" x="%.1f" y="%.1f">%d</text></g>`, l.ink, cx+frame+cellWidth/2, cy+11, c)
				cy += cellHeight
			}
			p.b.WriteString("\n")
		}
		y += p.rowHeight(row) + gap
	}
}

// square draws a CPU without its number.
func (p *picture) square(l look, x, y, height float64) {
	fmt.Fprintf(&p.b, `<rect class="%s" x="%.1f" y="%.1f" width="%.0f" height="%.0f"/>`, l.class, x+1, y+1, cellWidth-2, height-2)
	for i, class := range l.bars {
		w := (cellWidth - 4) / float64(len(l.bars))
		fmt.Fprintf(&p.b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, class, x+2+float64(i)*w, y+height-2-barHeight, w, barHeight)
	}
	if l.mark != "" {
		fmt.Fprintf(&p.b, `<text class="m%s %s" x="%.1f" y="%.1f">%s</text>`, l.narrow(), l.ink, x+cellWidth/2, y+height-9, html.EscapeString(l.mark))
	}
}

// list draws the legend. It returns the y coordinate below the legend.
func (p *picture) list(y, width float64) float64 {
	const (
		sample   = 24.0 // height of the square of an entry
		words    = margin + cellWidth + 10
		policies = 64.0 // width of the names of the policies
	)
	entry := func(x float64, l *look, name, text string) {
		if l != nil {
			p.square(*l, margin, y, sample)
		}
		at := y + 16
		line := func(class, text string) {
			fmt.Fprintf(&p.b, `<text class="%s" x="%.0f" y="%.0f">%s</text>`, class, x, at, html.EscapeString(text))
			at += lineHeight
		}
		room := width - x - margin
		if whole := measureBold(name) + measurePlain("  "+text); name != "" && whole <= room {
			fmt.Fprintf(&p.b, `<text x="%.0f" y="%.0f"><tspan class="b">%s</tspan><tspan dx="8">%s</tspan></text>`, x, at, html.EscapeString(name), html.EscapeString(text))
			at += lineHeight
		} else {
			for _, s := range wrap(name, room, measureBold) {
				line("b", s)
			}
			for _, s := range wrap(text, room, measurePlain) {
				line("", s)
			}
		}
		p.b.WriteString("\n")
		y = max(at-lineHeight+14, y+sample+4)
	}
	for _, e := range p.entries() {
		fmt.Fprintf(&p.b, `<text class="dim" x="%.0f" y="%.0f">%v</text>`, words, y+16, e.policy)
		entry(words+policies, &e.look, e.name, e.text)
	}
	for _, s := range p.legend() {
		l := s.look()
		entry(words, &l, "", s.means)
	}
	if p.m.Len() > 0 {
		fmt.Fprintf(&p.b, `<rect class="core" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="4"/>`, margin+0.5, y+0.5, cellWidth-1, sample-1)
		entry(words, nil, "", coreMeans)
	}
	for _, note := range p.pictureNotes() {
		entry(margin, nil, "", note)
	}
	return y + margin
}
