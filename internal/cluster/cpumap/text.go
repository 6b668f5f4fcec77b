package cpumap

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/model/unit"
)

// coresOfLine is the maximum number of cores on one line of text.
const coresOfLine = 16

// Text prints one line for each L3 cache, and then the list of owners. A group
// of marks is a core, and a mark is one CPU of the core.
func (m *Map) Text() string {
	var b strings.Builder
	fmt.Fprintln(&b, m.heading())
	name, set, width := 0, 0, 1
	for _, o := range m.owners {
		width = max(width, len(o.mark))
	}
	m.eachPart(func(p *part) {
		if p.level == pick.L3 {
			name, set = max(name, len(p.name)), max(set, len(p.cpus.String()))
		}
	})
	m.eachPart(func(p *part) {
		switch p.level {
		case pick.Socket:
			fmt.Fprintf(&b, "\n%s%s\n", p.name, poolsOf(p.pools))
		case pick.NUMA:
			fmt.Fprintf(&b, "  %s, %d of %s open%s\n", p.name, m.countOpen(p), count(p.cpus.Len(), "CPU"), poolsOf(p.pools))
		default:
			for i, row := range rows(p.cores) {
				if i > 0 {
					fmt.Fprintf(&b, "    %*s  %s\n", -name-set-2, "", m.row(row, width))
					continue
				}
				fmt.Fprintf(&b, "    %-*s  %-*s  %s  %s\n", name, p.name, set, p.cpus, m.row(row, width), m.room(p))
			}
		}
	})
	b.WriteString("\n")
	widest, longest := len(markOpen), len("GRADE")
	for _, o := range m.owners {
		widest, longest = max(widest, len(o.mark)), max(longest, len(o.Name))
	}
	for i := range m.owners {
		o := &m.owners[i]
		fmt.Fprintf(&b, "%-*s  %-5v  %-*s  %s\n", widest, o.mark, o.Hold.Grade, longest, o.Name, m.describe(o))
	}
	for _, line := range m.legend() {
		fmt.Fprintf(&b, "%-*s  %s\n", widest, line[0], line[1])
	}
	return b.String()
}

// legend explains the marks in the map that belong to no owner.
func (m *Map) legend() [][2]string {
	has := map[string]bool{}
	m.eachPart(func(p *part) {
		for c := range p.cpus.All() {
			has[m.mark(c)] = true
		}
	})
	var lines [][2]string
	for _, line := range [][2]string{
		{markShared, "seats of several pods"},
		{markOpen, "open: for all pods that own no CPUs, and for pools"},
		{markReserved, "reserved: no pod owns it"},
	} {
		if has[line[0]] {
			lines = append(lines, line)
		}
	}
	return lines
}

// eachPart calls visit for all parts, beginning with the first socket. A part
// comes before the parts that it contains.
func (m *Map) eachPart(visit func(*part)) {
	var walk func([]*part)
	walk = func(parts []*part) {
		for _, p := range parts {
			visit(p)
			walk(p.parts)
		}
	}
	walk(m.sockets)
}

// rows divides cores into lines.
func rows(cores []unit.CPUSet) [][]unit.CPUSet {
	var all [][]unit.CPUSet
	for len(cores) > coresOfLine {
		all, cores = append(all, cores[:coresOfLine]), cores[coresOfLine:]
	}
	return append(all, cores)
}

func (m *Map) row(cores []unit.CPUSet, width int) string {
	apart := ""
	if width > 1 {
		apart = "/"
	}
	var groups []string
	for _, core := range cores {
		var marks []string
		for c := range core.All() {
			marks = append(marks, fmt.Sprintf("%-*s", width, m.mark(c)))
		}
		groups = append(groups, strings.Join(marks, apart))
	}
	return strings.Join(groups, " ")
}

// room describes the open CPUs of an L3 cache.
func (m *Map) room(p *part) string {
	text := fmt.Sprintf("%d of %d open", m.countOpen(p), p.cpus.Len())
	if p.load > 0 {
		text += fmt.Sprintf(", of which pods request %v", p.load)
	}
	return text + poolsOf(p.pools)
}

// poolsOf lists the names of the pods that share a part.
func poolsOf(pools []*Owner) string {
	var marks []string
	for _, o := range pools {
		marks = append(marks, o.mark)
	}
	switch len(marks) {
	case 0:
		return ""
	case 1:
		return ", pool of " + marks[0]
	}
	return ", pools of " + strings.Join(marks, " ")
}

// The marks of cores in Line.
const (
	coreOwned = "O" // pods own all its CPUs
	corePart  = "o" // pods own some of its CPUs
	coreSeats = "s" // pods have seats on it
)

// Line prints the map in one line. It has a mark for each core, a space between
// L3 caches, and a bar between NUMA nodes.
func (m *Map) Line() string {
	var nodes []string
	for _, s := range m.sockets {
		for _, n := range s.parts {
			var caches []string
			for _, c := range n.parts {
				text := ""
				for _, core := range c.cores {
					text += m.core(core)
				}
				caches = append(caches, text)
			}
			nodes = append(nodes, strings.Join(caches, " "))
		}
	}
	return strings.Join(nodes, " | ")
}

// LineLegend explains the marks of Line.
const LineLegend = "A mark is a core: O owned, o owned in part, s with seats, . open, # reserved; a space is between L3 caches, | between\nNUMA nodes."

func (m *Map) core(core unit.CPUSet) string {
	owned, seats, reserved := 0, 0, 0
	for c := range core.All() {
		switch at := m.cells[c]; {
		case at.owner != nil:
			owned++
		case at.reserved:
			reserved++
		case len(at.seats) > 0:
			seats++
		}
	}
	switch {
	case owned == core.Len():
		return coreOwned
	case owned > 0:
		return corePart
	case seats > 0:
		return coreSeats
	case reserved == core.Len():
		return markReserved
	}
	return markOpen
}
