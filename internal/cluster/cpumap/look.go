package cpumap

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A look is the appearance of a CPU, or of an entry of the legend.
type look struct {
	class string   // of the square
	mark  string   // "" if the square shows only its number
	ink   string   // class of number and mark
	bars  []string // classes of the bars at its foot: the pools in which the CPU is
}

// narrow returns the class for a mark of several letters, or "" for one letter.
func (l look) narrow() string {
	switch len(l.mark) {
	case 0, 1:
		return ""
	case 2:
		return " m2"
	}
	return " m3"
}

// mostBars is the maximum number of pools whose bars a square shows. A square
// with more pools has one bar without a colour.
const mostBars = 3

// look returns how a picture shows a CPU.
func (m *Map) look(c unit.CPU) look {
	at := m.cells[c]
	switch {
	case len(at.owners) == 1:
		return at.owners[0].look()
	case len(at.owners) > 1:
		return look{class: "many", mark: markContested}
	case at.reserved:
		return look{class: "reserved", mark: markReserved}
	}
	l := look{class: "cpu"}
	switch len(at.seats) {
	case 0:
		if text := marksOf(at.pools); len(text) <= 2 || len(at.pools) == 1 { // more letters do not fit into the square
			l.mark = text
		}
		if len(at.pools) == 1 {
			l.ink = at.pools[0].class("t")
		}
	case 1:
		l = at.seats[0].look()
	default:
		l.class, l.mark = "many", markShared
	}
	l.bars = bars(at.pools)
	return l
}

// look returns how the legend shows an owner.
func (o *Owner) look() look {
	switch {
	case o.Policy == cpus.Exclusive:
		return look{class: o.class("f"), mark: o.mark, ink: o.class("t")}
	case o.isPool():
		return look{class: "cpu", mark: o.mark, ink: o.class("t"), bars: bars([]*Owner{o})}
	}
	return look{class: o.class("e"), mark: o.mark, ink: o.class("t")}
}

// look returns the appearance of a sign in the legend. In a picture, an open
// CPU has no mark.
func (s sign) look() look {
	switch s.mark {
	case markOpen:
		return look{class: "cpu"}
	case markReserved:
		return look{class: "reserved", mark: s.mark}
	}
	return look{class: "many", mark: s.mark}
}

// class returns the CSS class of an owner. kind is f for the surface of an own
// CPU, e for the frame of a seat, b for the bar of a pool, and t for text.
func (o *Owner) class(kind string) string { return fmt.Sprintf("%s%d", kind, o.index) }

func marksOf(owners []*Owner) string {
	var b strings.Builder
	for _, o := range owners {
		b.WriteString(o.mark)
	}
	return b.String()
}

func bars(pools []*Owner) []string {
	if len(pools) > mostBars {
		return []string{"bars"}
	}
	var all []string
	for _, o := range pools {
		all = append(all, o.class("b"))
	}
	return all
}

// pictureNotes explains what the squares of a picture do not show.
func (m *Map) pictureNotes() []string {
	var all []string
	if m.hasPools() {
		all = append(all, "A bar at the foot of a CPU has the colour of the pool in which the CPU is. Pods that own no CPUs use it, too.")
	}
	for _, at := range m.cells {
		if len(at.pools) > mostBars {
			all = append(all, fmt.Sprintf("A CPU in more than %d pools has one bar without a colour.", mostBars))
			break
		}
	}
	if kept := m.kept(); kept != "" {
		all = append(all, kept)
	}
	return all
}

// coreMeans explains the frame of a core.
const coreMeans = "a core: its CPUs stand in one frame"

// widthOf returns the number of cores in one row of the picture of an L3 cache.
func widthOf(cores int) int {
	switch {
	case cores <= 16:
		return 8
	case cores <= 64:
		return 16
	}
	return 32
}

// badge returns the name of a pool for the heading of a part.
func badge(word string, o *Owner) string { return word + " " + o.mark }

// title is the title of the picture and of the page.
func (m *Map) title() string { return "CPUs of " + m.node.Name }

// alternative describes the picture for readers that do not see it.
func (m *Map) alternative() string {
	lines := append([]string{m.summary()}, m.state()...)
	for _, s := range m.sockets {
		for _, n := range s.parts {
			for _, c := range n.parts {
				lines = append(lines, fmt.Sprintf("%s, %s, %s: %s", s.name, n.name, c.name, m.uses(c)))
			}
		}
	}
	return strings.Join(lines, ". ") + "."
}
