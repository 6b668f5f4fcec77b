package cpumap

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// The sizes of the text map, in columns.
const (
	columns  = 120 // of a line, unless a name is longer
	mostRow  = 64  // of the marks on one line
	mostList = 26  // of the list of CPUs before the marks
	mostName = 40  // of the name of a pod with its description beside it
)

// Text prints one line for each L3 cache, and then the list of owners. A group
// of marks is a core, and a mark is one CPU of the core. A large L3 cache has
// several lines.
func (m *Map) Text() string {
	var b strings.Builder
	hang(&b, m.node.Name+": ", m.summary()+poolsOf("pool", m.pools), 2)
	for _, line := range m.state() {
		hang(&b, "", line, 2)
	}
	if m.m.Len() > 0 {
		m.table(&b)
		b.WriteString("\n")
		m.list(&b)
		b.WriteString("\n")
	}
	for _, note := range m.notes() {
		hang(&b, "", note, 0)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// table prints the sockets, NUMA nodes and L3 caches.
func (m *Map) table(b *strings.Builder) {
	name, list := 0, 0
	m.eachPart(func(p *part) {
		if p.level == cpus.L3 {
			name = max(name, len(p.name))
			for _, row := range rows(p.cores, m.width) {
				list = max(list, len(listOfRow(row)))
			}
		}
	})
	m.eachPart(func(p *part) {
		switch p.level {
		case cpus.Socket:
			b.WriteString("\n")
			text := p.name
			if len(p.parts) > 1 {
				text += ", " + m.roomOf(p)
			}
			hang(b, "", text+poolsOf("pool", p.pools), 4)
		case cpus.NUMA:
			hang(b, "  ", fmt.Sprintf("%s, %s%s", p.name, m.roomOf(p), poolsOf("pool", p.pools)), 4)
		default:
			label := p.name
			for i, row := range rows(p.cores, m.width) {
				line := fmt.Sprintf("    %-*s  %-*s  %s", name, label, list, listOfRow(row), m.row(row))
				if i > 0 {
					b.WriteString(strings.TrimRight(line, " ") + "\n")
					continue
				}
				hang(b, line+"  ", m.roomOf(p)+poolsOf("pool", p.pools)+poolsOf("grown pool", p.grown), len(line)+2)
				label = ""
			}
		}
	})
}

// list lists the pods, and explains the marks that belong to no pod. If the
// name of a pod is long, its description has a line of its own.
func (m *Map) list(b *strings.Builder) {
	entries := m.entries()
	mark, name := m.width, 0
	for _, e := range entries {
		if n := utf8.RuneCountInString(e.name); n <= mostName {
			name = max(name, n)
		}
	}
	for _, e := range entries {
		line := fmt.Sprintf("%s  %-9v  %-*s  ", e.mark, e.policy, name, e.name)
		indent := mark + 2 + 9 + 2 + name + 2
		if utf8.RuneCountInString(e.name) > mostName {
			fmt.Fprintln(b, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", indent)
		}
		hang(b, line, e.text, indent)
	}
	for _, s := range m.legend() {
		hang(b, m.sign(s.mark)+"  ", s.means, mark+2)
	}
}

// notes explains what the marks do not say.
func (m *Map) notes() []string {
	var all []string
	switch cores := len(pick.Cores(m.m)); {
	case cores == 0:
	case cores == m.m.Len():
		all = append(all, "Each mark is a core with one CPU.")
	default:
		all = append(all, "A group of marks is a core, and each mark is one of its CPUs, the lowest number first.")
	}
	if m.hasPools() {
		all = append(all, "A pool is all open CPUs of the part beside which it stands. Other pods that own no CPUs use them, too.")
	}
	if kept := m.kept(); kept != "" {
		all = append(all, kept)
	}
	return all
}

// hang writes a text after a prefix. If the text needs several lines, the
// following lines are indented.
func hang(b *strings.Builder, prefix, text string, indent int) {
	room := max(columns-max(len(prefix), indent), mostName)
	for i, line := range wrap(text, float64(room), func(s string) float64 { return float64(utf8.RuneCountInString(s)) }) {
		if i > 0 {
			prefix = strings.Repeat(" ", indent)
		}
		fmt.Fprintf(b, "%s%s\n", prefix, line)
	}
}

// rows divides the cores of an L3 cache into lines. width is the width of a
// mark.
func rows(cores []unit.CPUSet, width int) [][]unit.CPUSet {
	most := 1
	for _, core := range cores {
		most = max(most, core.Len())
	}
	step := 16
	for step > 1 && step*(most*width+(most-1)*min(width-1, 1)+1) > mostRow {
		step /= 2
	}
	var all [][]unit.CPUSet
	for len(cores) > step {
		all, cores = append(all, cores[:step]), cores[step:]
	}
	return append(all, cores)
}

// listOfRow prints the CPUs of a line.
func listOfRow(cores []unit.CPUSet) string {
	var set unit.CPUSet
	for _, core := range cores {
		set = set.Union(core)
	}
	return shorten(listOf(set), mostList)
}

func (m *Map) row(cores []unit.CPUSet) string {
	apart := ""
	if m.width > 1 {
		apart = "/"
	}
	var groups []string
	for _, core := range cores {
		var marks []string
		for c := range core.All() {
			marks = append(marks, m.mark(c))
		}
		groups = append(groups, strings.Join(marks, apart))
	}
	return strings.Join(groups, " ")
}

// roomOf describes the open CPUs of a part.
func (m *Map) roomOf(p *part) string {
	text := m.room(p)
	if p.load > 0 && (p.level == cpus.L3 || len(p.parts) > 1) {
		text += fmt.Sprintf(", %v requested", p.load)
	}
	return text
}

// poolsOf lists the marks of the pods that share a part.
func poolsOf(word string, pools []*Owner) string {
	var marks []string
	for _, o := range pools {
		marks = append(marks, o.mark)
	}
	switch len(marks) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(", %s of %s", word, marks[0])
	}
	return fmt.Sprintf(", %ss of %s", word, strings.Join(marks, " "))
}
