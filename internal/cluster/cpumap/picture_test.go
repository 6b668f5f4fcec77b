package cpumap

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A shape is a rectangle or a line of text of an SVG picture.
type shape struct {
	name, class string
	x, y, w, h  float64
	text, hover string
	legend      bool // it stands below the sockets
}

func (a shape) has(class string) bool { return slices.Contains(strings.Fields(a.class), class) }

// within reports whether b contains the middle of a shape, or the start of a text.
func (a shape) within(b shape) bool {
	x, y := a.x+a.w/2, a.y+a.h/2
	return b.x <= x && x <= b.x+b.w && b.y <= y && y <= b.y+b.h
}

// shapesOf reads an SVG picture. It fails if the picture is not XML.
func shapesOf(t *testing.T, name, svg string) (shapes []shape, width, height float64) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	depth, bottom, hover, path := 0, 0.0, "", []string{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return shapes, width, height
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			path = append(path, e.Name.Local)
			s := shape{name: e.Name.Local}
			for _, a := range e.Attr {
				v, _ := strconv.ParseFloat(a.Value, 64)
				switch a.Name.Local {
				case "viewBox":
					if _, err := fmt.Sscanf(a.Value, "0 0 %f %f", &width, &height); err != nil {
						t.Fatalf("%s: %q: %v", name, a.Value, err)
					}
				case "class":
					s.class = a.Value
				case "x":
					s.x = v
				case "y":
					s.y = v
				case "width":
					s.w = v
				case "height":
					s.h = v
				}
			}
			if s.name == "g" {
				hover = ""
			}
			if s.name == "rect" || s.name == "text" {
				s.hover = hover
				if s.has("socket") {
					bottom = max(bottom, s.y+s.h)
				}
				s.legend = bottom > 0 && s.y > bottom
				shapes = append(shapes, s)
			}
		case xml.EndElement:
			path = path[:len(path)-1]
			if e.Name.Local == "g" {
				hover = ""
			}
		case xml.CharData:
			switch last := path[max(len(path)-1, 0):]; {
			case len(last) == 0:
			case last[0] == "title" && slices.Contains(path, "g"):
				hover = string(e)
			case slices.Contains(path, "text"):
				shapes[len(shapes)-1].text += string(e)
			}
		}
	}
}

// cellsOf returns the square of each CPU and the text in it.
func cellsOf(t *testing.T, name string, m *Map) map[unit.CPU][]shape {
	t.Helper()
	cells := map[unit.CPU][]shape{}
	shapes, _, _ := shapesOf(t, name, m.SVG())
	for _, s := range shapes {
		var c unit.CPU
		if _, err := fmt.Sscanf(s.hover, "CPU %d:", &c); err == nil {
			cells[c] = append(cells[c], s)
		}
	}
	return cells
}

func findText(cell []shape, class string) string {
	for _, s := range cell {
		if s.name == "text" && s.has(class) {
			return s.text
		}
	}
	return ""
}

// TestPicturesAreXML checks that the SVG of each scene is XML, even if names
// contain markup. Each CPU must have one square with its number.
func TestPicturesAreXML(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		cells := cellsOf(t, name, m)
		if len(cells) != m.m.Len() {
			t.Errorf("%s: squares for %d CPUs, want %d", name, len(cells), m.m.Len())
		}
		for c, cell := range cells {
			if got := findText(cell, "n"); got != fmt.Sprint(c) {
				t.Errorf("%s: the square of CPU %d has the number %q", name, c, got)
			}
		}
	}
	m := of(machine(1, 1, 2, 1), "", own("<ns>/p7", "0"))
	if _, _, height := shapesOf(t, "markup", m.SVG()); height == 0 {
		t.Error("no size")
	}
	if page := m.HTML(); !strings.Contains(page, "&lt;ns&gt;/p7") || strings.Contains(page, "<ns>") {
		t.Error("the page does not escape the names of the owners")
	}
}

// TestNoTextOfAPictureIsCut checks that each text ends within the picture, and
// that texts do not overlap the lines below. The legend must have names of 317
// characters in full.
func TestNoTextOfAPictureIsCut(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		shapes, width, height := shapesOf(t, name, m.SVG())
		if width < least || width > most {
			t.Errorf("%s: the picture is %v wide", name, width)
		}
		all := ""
		for _, s := range shapes {
			if s.name == "rect" && s.class != "page" && (s.x+s.w > width || s.y+s.h > height) {
				t.Errorf("%s: a rectangle ends outside the picture: %+v", name, s)
			}
			if s.name != "text" || s.has("n") || s.has("m") {
				continue
			}
			bold, size := s.has("b"), 12.0
			if s.has("h") {
				bold, size = true, 16
			}
			if end := s.x + measure(s.text, size, bold); end > width || s.y > height-4 {
				t.Errorf("%s: %q ends at %.0f, %.0f in a picture of %.0f x %.0f", name, s.text, end, s.y, width, height)
			}
			if s.legend {
				all += s.text
			}
		}
		for _, o := range m.owners {
			if !strings.Contains(all, o.Pod) {
				t.Errorf("%s: the legend does not have %s in full", name, o.Pod)
			}
		}
	}
}

// TestTheLegendHasNoCPU checks that no square of the legend has a number,
// because it would look like a CPU of the node.
func TestTheLegendHasNoCPU(t *testing.T) {
	numbers := regexp.MustCompile(`^\d+$`)
	for name, scene := range scenes {
		shapes, _, _ := shapesOf(t, name, scene().SVG())
		for _, s := range shapes {
			if s.legend && (s.has("n") || s.has("m") && numbers.MatchString(s.text)) {
				t.Errorf("%s: the legend has a square with %q", name, s.text)
			}
		}
		if _, legend, _ := strings.Cut(scene().HTML(), "<h2>Legend"); strings.Contains(legend, "<i>") {
			t.Errorf("%s: the legend of the page has a square with a number", name)
		}
	}
}

// TestTheCPUsOfACoreStandInOneFrame checks that each frame contains the CPUs of
// one core and no others, in the picture and in the page.
func TestTheCPUsOfACoreStandInOneFrame(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		cells := cellsOf(t, name, m)
		shapes, _, _ := shapesOf(t, name, m.SVG())
		var want, got, onPage []string
		for _, core := range pick.Cores(m.m) {
			want = append(want, core.String())
		}
		for _, frame := range shapes {
			if !frame.has("core") || frame.legend {
				continue
			}
			var in unit.CPUSet
			for c, cell := range cells {
				if cell[0].within(frame) {
					in.Add(c)
				}
			}
			got = append(got, in.String())
		}
		page, _, _ := strings.Cut(m.HTML(), "<h2>Legend")
		for _, text := range strings.Split(page, `<div class="core">`)[1:] {
			var in unit.CPUSet
			for _, n := range regexp.MustCompile(`<i>(\d+)</i>`).FindAllStringSubmatch(text, -1) {
				in = in.Union(set(n[1]))
			}
			onPage = append(onPage, in.String())
		}
		if !slices.Equal(got, want) || !slices.Equal(onPage, want) {
			t.Errorf("%s: frames around\n%v, on the page\n%v, want\n%v", name, got, onPage, want)
		}
	}
}

// TestAPoolIsVisible checks that all open CPUs of a pool, and no others, have a
// bar in its colour. They must have its letter if no pod has seats there.
func TestAPoolIsVisible(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"2 CPUs":       {"default/burst": "0"},
		"16 CPUs":      {"shop/encode-0": "4-6,12-15"},
		"256 CPUs":     {"shop/burst-0": "120-127,248-255"},
		"one L3":       {"shop/encode-0": "17-63,81-127"},
		"sub-NUMA":     {"shop/encode-0": "8-15,40-47", "shop/encode-1": "4-15,36-47"},
		"a grown pool": {"shop/encode-0": "0-7", "shop/encode-1": "0-3"},
	} {
		m := scenes[name]()
		cells := cellsOf(t, name, m)
		page := m.HTML()
		for _, o := range m.owners {
			if !o.isPool() {
				continue
			}
			var barred, lettered, onPage unit.CPUSet
			for c, cell := range cells {
				if slices.ContainsFunc(cell, func(s shape) bool { return s.has(o.class("b")) }) {
					barred.Add(c)
				}
				if strings.Contains(findText(cell, "m"), o.mark) {
					lettered.Add(c)
				}
				_, square, _ := strings.Cut(page, fmt.Sprintf(`title="CPU %d:`, c))
				square, _, _ = strings.Cut(square, "</div>")
				if strings.Contains(square, fmt.Sprintf(`<span class="%s">`, o.class("b"))) {
					onPage.Add(c)
				}
			}
			if barred != set(want[o.Pod]) || onPage != barred {
				t.Errorf("%s: the bar of %s is on %v and on the page on %v, want %s", name, o.Pod, barred, onPage, want[o.Pod])
			}
			if name != "2 CPUs" && lettered != barred {
				t.Errorf("%s: the letter of %s is on %v, want %s", name, o.Pod, lettered, want[o.Pod])
			}
			if name != "one L3" && (!strings.Contains(m.SVG(), ">pool "+o.mark+"<") || !strings.Contains(page, ">pool "+o.mark+"<")) {
				t.Errorf("%s: no part has the name of the pool of %s", name, o.Pod)
			}
		}
	}
	if n := len(cellsOf(t, "many pools", scenes["many pools"]())[1]); n != 3 || !strings.Contains(scenes["many pools"]().HTML(), "A CPU in more than 3 pools has one bar without a colour.") {
		t.Errorf("a CPU in 30 pools consists of %d shapes, want a square, a bar and a number", n)
	}
	for _, text := range []string{scenes["one L3"]().SVG(), scenes["one L3"]().HTML()} {
		if !strings.Contains(text, "pool") {
			t.Error("the pool of a whole machine is not shown")
		}
	}
}

// TestAMapSaysWhoNeedsTheOpenCPUs checks the reason for CPUs that stay open.
func TestAMapSaysWhoNeedsTheOpenCPUs(t *testing.T) {
	m := scenes["2 CPUs"]()
	for name, text := range map[string]string{"text": m.Text(), "picture": joined(t, m), "page": m.HTML()} {
		if !strings.Contains(text, "At least 1 CPU must stay open: the daemons of the node, pods that own no CPUs, and best-effort work need it.") {
			t.Errorf("the %s does not say who needs the open CPU:\n%s", name, text)
		}
	}
	if m := New(Node{Topology: machine(1, 1, 2, 1), Keep: 2, Made: drawn}, nil); !strings.Contains(m.Text(), "At least 2 CPUs must stay open: ") {
		t.Error(m.Text())
	}
	if m := New(Node{Topology: machine(1, 1, 2, 1), Made: drawn}, nil); strings.Contains(m.Text(), "must stay open") {
		t.Error("no CPU must stay open, but the map names one")
	}
	m = New(Node{Topology: machine(1, 1, 2, 1), Reserved: set("0-1"), Keep: 1, Made: drawn}, nil)
	for name, text := range map[string]string{"text": m.Text(), "picture": joined(t, m), "page": m.HTML()} {
		if strings.Contains(text, "must stay open") {
			t.Errorf("all CPUs are reserved, but the %s says that one must stay open:\n%s", name, text)
		}
	}
}

// joined returns all text of a picture, with a space between lines.
func joined(t *testing.T, m *Map) string {
	t.Helper()
	shapes, _, _ := shapesOf(t, "", m.SVG())
	var all []string
	for _, s := range shapes {
		if s.name == "text" {
			all = append(all, s.text)
		}
	}
	return strings.Join(all, " ")
}

// TestAMapKeepsItsTimes checks that a saved map contains the time of the report
// and its own time, in UTC.
func TestAMapKeepsItsTimes(t *testing.T) {
	m := scenes["2 CPUs"]()
	for name, text := range map[string]string{"text": m.Text(), "picture": joined(t, m), "page": m.HTML()} {
		if !strings.Contains(text, "reported 2026-03-01T11:59:50Z; this map was made 2026-03-01T12:00:00Z, 10s later") || strings.Contains(text, " ago") {
			t.Errorf("the %s does not have both times:\n%s", name, text)
		}
	}
	if text := scenes["silent"]().Text(); !strings.Contains(text, "2h0m0s later\nthe agent of the node is silent: the map may not be true any more") ||
		!strings.Contains(text, "\nanother manager binds CPUs on this node: the static policy of the kubelet\n") {
		t.Error(text)
	}
	ahead := New(Node{Topology: machine(1, 1, 1, 1), Reported: drawn.Add(3600e9), Made: drawn}, nil)
	if text := ahead.Text(); strings.Contains(text, "later") {
		t.Errorf("the clock of the node is ahead:\n%s", text)
	}
}

// TestColoursHaveContrast checks the contrast of all text and lines, in the
// light and the dark scheme, for each hue.
func TestColoursHaveContrast(t *testing.T) {
	for name, s := range map[string]scheme{"light": light, "dark": dark} {
		check := func(what string, a, b colour, want float64) {
			if got := contrast(a, b); got < want {
				t.Errorf("%s: %s: %v on %v has a contrast of %.2f, want %.1f", name, what, a, b, got, want)
			}
		}
		for on, surface := range map[string]colour{"page": s.page, "socket": s.socket, "NUMA node": s.numa, "L3 cache": s.l3, "reserved": s.reserved} {
			check("text on "+on, s.ink, surface, 4.5)
			check("dim text on "+on, s.dim, surface, 4.5)
			for hue := range 360 {
				check(fmt.Sprintf("mark of hue %d on %s", hue, on), s.text.of(hue), surface, 4.5)
			}
		}
		for on, surface := range map[string]colour{"page": s.page, "socket": s.socket, "NUMA node": s.numa, "L3 cache": s.l3} {
			check("frame on "+on, s.line, surface, 3)
		}
		for hue := range 360 {
			check(fmt.Sprintf("mark of hue %d on an own CPU", hue), s.text.of(hue), s.fill.of(hue), 4.5)
			check(fmt.Sprintf("bar of hue %d", hue), s.edge.of(hue), s.l3, 3)
		}
	}
	if got := contrast(colour{0, 0, 0}, colour{255, 255, 255}); math.Abs(got-21) > 1e-9 {
		t.Errorf("the contrast of black and white is %v", got)
	}
	if got := contrast(colour{0x77, 0x77, 0x77}, colour{255, 255, 255}); math.Abs(got-4.48) > 0.005 {
		t.Errorf("the contrast of #777777 and white is %v", got)
	}
}

// contrast returns the contrast ratio of two colours, from 1 to 21 (WCAG 2.2).
func contrast(a, b colour) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance returns the relative luminance of a colour (WCAG 2.2).
func luminance(c colour) float64 {
	sum := 0.0
	for i, share := range [...]float64{0.2126, 0.7152, 0.0722} {
		f := float64(c[i]) / 255
		if f <= 0.04045 {
			f /= 12.92
		} else {
			f = math.Pow((f+0.055)/1.055, 2.4)
		}
		sum += share * f
	}
	return sum
}

// TestColoursOfMarksAreTheirOwn checks that a picture and a page use only the
// text colours that TestColoursHaveContrast checks.
func TestColoursOfMarksAreTheirOwn(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		allowed := map[string]bool{}
		for _, s := range []scheme{light, dark} {
			for _, c := range []colour{s.page, s.socket, s.numa, s.l3, s.reserved, s.ink, s.dim, s.line} {
				allowed[c.String()] = true
			}
			for i := range m.owners {
				for _, shade := range []shade{s.fill, s.edge, s.text} {
					allowed[shade.of(m.owners[i].hue()).String()] = true
				}
			}
		}
		for _, c := range regexp.MustCompile(`#[0-9a-f]{3,6}\b`).FindAllString(m.SVG()+m.HTML(), -1) {
			if !allowed[c] {
				t.Errorf("%s: the colour %s belongs to no scheme", name, c)
			}
		}
	}
}

// TestPicturesFitTheirPlace checks the parts of a picture for narrow screens,
// dark screens and screen readers.
func TestPicturesFitTheirPlace(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		svg, page := m.SVG(), m.HTML()
		for _, want := range []string{` width="100%" style="max-width:`, ` role="img" aria-labelledby="map-title map-desc"`, `<title id="map-title">CPUs of worker-1</title>`, `<desc id="map-desc">`, "@media (prefers-color-scheme:dark)"} {
			if !strings.Contains(svg, want) {
				t.Errorf("%s: the picture does not have %s", name, want)
			}
		}
		for _, want := range []string{"<title>CPUs of worker-1</title>", `<html lang="en">`, "@media (prefers-color-scheme:dark)", `name="viewport" content="width=device-width"`} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page does not have %s", name, want)
			}
		}
		if n, caches := strings.Count(page, ` role="img" aria-label="CPU `), len(m.m.Domains(cpus.L3)); n != caches {
			t.Errorf("%s: %d of %d L3 caches have a text for readers that do not see them", name, n, caches)
		}
		for _, px := range regexp.MustCompile(`[^-]width[:=]"?(\d+)px`).FindAllStringSubmatch(page, -1) {
			if n, _ := strconv.Atoi(px[1]); n > 300 {
				t.Errorf("%s: something on the page is %d px wide", name, n)
			}
		}
		for c := range m.all().All() {
			if !strings.Contains(page, fmt.Sprintf(`title="CPU %d: `, c)) {
				t.Errorf("%s: CPU %d has no hover text on the page", name, c)
			}
		}
	}
}

// TestAHoverTextHasTheOwnersOfACPU checks the texts of the CPUs of one scene.
func TestAHoverTextHasTheOwnersOfACPU(t *testing.T) {
	m := scenes["16 CPUs"]()
	for _, want := range []string{
		"CPU 0: owned by shop/db-0", "CPU 3: open, seat of shop/web-1", "CPU 11: open, seat of shop/web-1, shop/web-0", "CPU 7: reserved", "CPU 4: open, in the pool of shop/encode-0",
	} {
		if !strings.Contains(m.SVG(), "<title>"+want+"</title>") || !strings.Contains(m.HTML(), `title="`+want+`"`) {
			t.Errorf("picture or page does not have the hover text %q", want)
		}
	}
	if svg := m.SVG(); !strings.Contains(svg, "socket 0, NUMA node 0, L3 0: CPU 0-1,8-9: owned by shop/db-0; CPU 2: owned by shop/cache-0; CPU 3: open, seat of shop/web-1; ") {
		t.Error("the description of the picture does not name the owners")
	}
}
