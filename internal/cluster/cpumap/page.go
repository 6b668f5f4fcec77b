package cpumap

import (
	"fmt"
	"html"
	"strings"

	"tenon.sh/tenon/internal/model/cpus"
)

// HTML returns the map as a page that needs no other file. On a narrow screen,
// the parts of the page move below each other. The picture would become
// smaller.
func (m *Map) HTML() string {
	p := &page{Map: m}
	for _, s := range m.sockets {
		p.part(s)
	}
	var facts strings.Builder
	for _, fact := range append([]string{m.summary()}, m.state()...) {
		fmt.Fprintf(&facts, "<p>%s</p>\n", html.EscapeString(fact))
	}
	for _, o := range m.pools {
		fmt.Fprintf(&facts, `<p class="%s"><b>%s</b> is the whole machine</p>`+"\n", o.class("t"), badge("pool", o))
	}
	return fmt.Sprintf(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>%[1]s</title>
<style>%[2]s</style>
</head>
<body>
<h1>%[1]s</h1>
%[3]s<main>
%[4]s</main>
%[5]s</body>
</html>
`, html.EscapeString(m.title()), m.pageStyle(), facts.String(), p.b.String(), p.legend())
}

// pageStyle returns the style sheet of the page.
func (m *Map) pageStyle() string {
	rules := func(s scheme) string {
		var b strings.Builder
		fmt.Fprintf(&b, ":root{--page:%v;--socket:%v;--numa:%v;--l3:%v;--reserved:%v;--ink:%v;--dim:%v;--line:%v}", s.page, s.socket, s.numa, s.l3, s.reserved, s.ink, s.dim, s.line)
		for i := range m.owners {
			o := &m.owners[i]
			hue := o.hue()
			fmt.Fprintf(&b, "\n.%s{background:%v;border-color:%v}.%s{border-color:%[5]v;outline:1px solid %[5]v;outline-offset:-2px}.%s{background:%v}.%s{color:%v}", o.class("f"), s.fill.of(hue), s.edge.of(hue),
				o.class("e"), s.edge.of(hue), o.class("b"), s.edge.of(hue), o.class("t"), s.text.of(hue))
		}
		return b.String()
	}
	return fmt.Sprintf(`
body{margin:.75rem;print-color-adjust:exact;background:var(--page);color:var(--ink);font:14px/1.35 system-ui,sans-serif}
h1{font-size:1.25rem;margin:0 0 .25rem;overflow-wrap:anywhere}h2,h3,h4{font-size:1em;font-weight:400;margin:0 0 .25rem}
h1+p{font-weight:600}p{margin:.15rem 0;overflow-wrap:anywhere}
body>h2{font-weight:700;margin-top:1rem}
small{font-size:1em;color:var(--dim)}
main,.parts,.cores{display:flex;flex-wrap:wrap;align-items:flex-start;gap:6px}main{margin-top:.75rem}.cores{gap:4px}
.socket,.numa,.l3{border:1px solid var(--line);border-radius:5px;padding:6px;min-width:0}
.socket{background:var(--socket)}.numa{background:var(--numa)}.l3{background:var(--l3)}
.core{display:flex;flex-direction:column;border:1px solid var(--line);border-radius:4px;padding:1px}
.square{box-sizing:border-box;position:relative;width:26px;height:34px;border:1px solid var(--line);background:var(--l3);text-align:center;overflow:hidden;flex:none;line-height:1}
.square i{font-style:normal;font-size:10px;display:block;margin-top:2px}.square b{font-size:13px;display:block;margin-top:1px}
.square .m2{font-size:11px;margin-top:3px}.square .m3{font-size:8px;margin-top:5px}
.foot{display:flex;position:absolute;left:0;right:0;bottom:0;height:4px}.foot span{flex:1}
.many{border-color:var(--ink);outline:1px solid var(--ink);outline-offset:-2px}.reserved{background:var(--reserved)}.bars{background:var(--ink)}
ul{list-style:none;padding:0;margin:0}li{display:flex;gap:10px;align-items:flex-start;margin:4px 0}
li .square{height:24px}li .square b{margin-top:2px}li .core{width:22px;height:20px}
li div{overflow-wrap:anywhere;min-width:0;padding-top:2px}li em{font-style:normal;color:var(--dim)}
%s
@media (prefers-color-scheme:dark){
%s
}
`, rules(light), rules(dark))
}

// A page is an unfinished page of a Map.
type page struct {
	*Map
	b strings.Builder
}

// part writes a part and all parts within it.
func (p *page) part(a *part) {
	class := map[cpus.Level]string{cpus.Socket: "socket", cpus.NUMA: "numa", cpus.L3: "l3"}[a.level]
	level := int(a.level-cpus.Socket) + 2 // of the heading
	fmt.Fprintf(&p.b, `<section class="%s"><h%d>%s <small>%s</small>`, class, level, html.EscapeString(a.name), p.room(a))
	for _, o := range a.pools {
		fmt.Fprintf(&p.b, ` <b class="%s">%s</b>`, o.class("t"), badge("pool", o))
	}
	for _, o := range a.grown {
		fmt.Fprintf(&p.b, ` <b class="%s">%s</b>`, o.class("t"), badge("grown pool", o))
	}
	fmt.Fprintf(&p.b, "</h%d>\n", level)
	if a.level == cpus.L3 {
		p.cores(a)
	} else {
		p.b.WriteString(`<div class="parts">` + "\n")
		for _, below := range a.parts {
			p.part(below)
		}
		p.b.WriteString("</div>\n")
	}
	p.b.WriteString("</section>\n")
}

// cores writes the CPUs of an L3 cache.
func (p *page) cores(a *part) {
	fmt.Fprintf(&p.b, `<div class="cores" role="img" aria-label="%s" style="max-width:%.0fpx">`+"\n", html.EscapeString(p.uses(a)), float64(widthOf(len(a.cores)))*(cellWidth+2*frame+gap))
	for _, core := range a.cores {
		p.b.WriteString(`<div class="core">`)
		for c := range core.All() {
			p.b.WriteString(square(p.look(c), fmt.Sprintf("CPU %d: %s", c, p.use(c)), fmt.Sprint(c)))
		}
		p.b.WriteString("</div>\n")
	}
	p.b.WriteString("</div>\n")
}

// square writes one CPU, or one entry of the legend (which has no number).
func square(l look, hover, number string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<div class="square %s"`, strings.TrimSpace(l.class+" "+l.ink))
	if hover != "" {
		fmt.Fprintf(&b, ` title="%s"`, html.EscapeString(hover))
	}
	b.WriteString(">")
	if number != "" {
		fmt.Fprintf(&b, "<i>%s</i>", number)
	}
	if l.mark != "" {
		fmt.Fprintf(&b, `<b class="m%s">%s</b>`, l.narrow(), html.EscapeString(l.mark))
	}
	if len(l.bars) > 0 {
		b.WriteString(`<span class="foot">`)
		for _, class := range l.bars {
			fmt.Fprintf(&b, `<span class="%s"></span>`, class)
		}
		b.WriteString("</span>")
	}
	b.WriteString("</div>")
	return b.String()
}

// legend lists the pods, and explains the squares. It is empty for a node
// without CPUs.
func (p *page) legend() string {
	if p.m.Len() == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<h2>Legend</h2>\n<ul>\n")
	for _, e := range p.entries() {
		fmt.Fprintf(&b, "<li>%s<div><em>%v</em> <b>%s</b> %s</div></li>\n", square(e.look, "", ""), e.policy, html.EscapeString(e.name), html.EscapeString(e.text))
	}
	for _, s := range p.Map.legend() {
		fmt.Fprintf(&b, "<li>%s<div>%s</div></li>\n", square(s.look(), "", ""), html.EscapeString(s.means))
	}
	fmt.Fprintf(&b, `<li><div class="core"></div><div>%s</div></li>`+"\n</ul>\n", coreMeans)
	for _, note := range p.pictureNotes() {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(note))
	}
	return b.String()
}
