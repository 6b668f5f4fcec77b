package cpumap

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// summary says how many CPUs the node has, and how they are divided.
func (m *Map) summary() string {
	if m.m.Len() == 0 {
		return "the report names no CPU"
	}
	nodes := len(m.m.Domains(cpus.NUMA))
	pieces := len(m.m.Domains(cpus.L3))
	text := fmt.Sprintf("%s, %d open; %s, %s, %s", table.Count(m.m.Len(), "CPU"), m.open(m.all()).Len(),
		table.Count(len(m.sockets), "socket"), table.Count(nodes, "NUMA node"), table.Count(m.caches, "L3 cache"))
	if pieces > m.caches {
		text += fmt.Sprintf(" in %d parts", pieces)
	}
	cores := pick.Cores(m.m)
	text += ", " + table.Count(len(cores), "core")
	if size := cores[0].Len(); !slices.ContainsFunc(cores, func(c unit.CPUSet) bool { return c.Len() != size }) {
		text += " of " + table.Count(size, "CPU")
	}
	return text
}

// state returns the time of the report, the time of the map, and reasons why
// the map may be wrong.
func (m *Map) state() []string {
	text := "reported " + stamp(m.node.Reported)
	if m.node.Reported.IsZero() {
		text = "the report has no time"
	}
	text += "; this map was made " + stamp(m.node.Made)
	if age := m.node.Made.Sub(m.node.Reported).Truncate(time.Second); !m.node.Reported.IsZero() && age >= 0 {
		text += fmt.Sprintf(", %v later", age)
	}
	lines := []string{text}
	if m.node.Silent {
		lines = append(lines, "the agent of the node is silent: the map may not be true any more, and tenon-scheduler gives the node no pod that asks for CPUs")
	}
	if m.node.Manager != "" {
		lines = append(lines, "another manager binds CPUs on this node: "+m.node.Manager)
	}
	if m.node.Fault != "" {
		lines = append(lines, m.node.Fault)
	}
	if off := m.Offline(); !off.Empty() {
		lines = append(lines, "not online: CPU "+listOf(off))
	}
	return lines
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// A sign is a mark that belongs to no pod, with its meaning.
type sign struct{ mark, means string }

// legend explains the marks in the map that belong to no pod.
func (m *Map) legend() []sign {
	has := map[string]bool{}
	for c := range m.all().All() {
		has[m.mark(c)] = true
	}
	var lines []sign
	for _, line := range []sign{
		{markShared, "seats of several pods"},
		{markContested, "several pods are bound to it: the pod that had it first keeps it, and the node chooses CPUs for the others"},
		{markOpen, "open: for all pods that own no CPUs, and for seats and pools"},
		{markReserved, "reserved: no pod may own it"},
	} {
		if has[m.sign(line.mark)] {
			lines = append(lines, line)
		}
	}
	return lines
}

// kept explains why some open CPUs must stay open. It returns "" if none must,
// or if all CPUs are reserved, so that none is open.
func (m *Map) kept() string {
	if m.node.Keep <= 0 || m.node.Reserved.Contains(m.all()) {
		return ""
	}
	them := "it"
	if m.node.Keep > 1 {
		them = "them"
	}
	return fmt.Sprintf("At least %s must stay open: the daemons of the node, pods that own no CPUs, and best-effort work need %s.", table.Count(m.node.Keep, "CPU"), them)
}

// hasPools reports whether a pod has a pool on the node.
func (m *Map) hasPools() bool {
	return slices.ContainsFunc(m.owners, func(o Owner) bool { return o.isPool() })
}

// An entry is a pod in the list of a map.
type entry struct {
	mark   string
	policy cpus.Policy
	name   string
	text   string
	look   look
}

// entries lists the pods: the owners by their marks, and then those to which the
// node gave no CPUs.
func (m *Map) entries() []entry {
	var all []entry
	for i := range m.owners {
		o := &m.owners[i]
		all = append(all, entry{o.mark, o.Policy, o.Pod, m.describe(o), o.look()})
	}
	for _, p := range m.node.Refused {
		why := cmp.Or(after("it ", p.Why), "the node gave it none") // the reason says that the pod has none
		all = append(all, entry{m.sign(markNone), p.Policy, p.Pod, why, look{class: "cpu", mark: markNone}})
	}
	return all
}

// partOf names the smallest part that contains a set.
func (m *Map) partOf(set unit.CPUSet) string { return m.m.LevelOf(set).One() }

// use says who uses a CPU.
func (m *Map) use(c unit.CPU) string {
	at := m.cells[c]
	var facts []string
	switch {
	case len(at.owners) > 1:
		facts = append(facts, "bound to "+names(at.owners))
	case len(at.owners) == 1:
		facts = append(facts, "owned by "+names(at.owners))
	case at.reserved:
		facts = append(facts, "reserved")
	default:
		facts = append(facts, "open")
	}
	if len(at.seats) > 0 {
		facts = append(facts, "seat of "+names(at.seats))
	}
	if len(at.pools) > 0 {
		facts = append(facts, "in the pool of "+names(at.pools))
	}
	return strings.Join(facts, ", ")
}

// uses describes who uses the CPUs of a part, for readers who do not see the
// picture.
func (m *Map) uses(p *part) string {
	var order []string
	sets := map[string]unit.CPUSet{}
	for c := range p.cpus.All() {
		use := m.use(c)
		if _, known := sets[use]; !known {
			order = append(order, use)
		}
		sets[use] = sets[use].With(c)
	}
	for i, use := range order {
		order[i] = fmt.Sprintf("CPU %s: %s", listOf(sets[use]), use)
	}
	return strings.Join(order, "; ")
}

// namesOf returns the names of owners.
func namesOf(owners []*Owner) []string {
	all := make([]string, len(owners))
	for i, o := range owners {
		all[i] = o.Pod
	}
	return all
}

func names(owners []*Owner) string { return strings.Join(namesOf(owners), ", ") }

// room says how many CPUs of a part are open.
func (m *Map) room(p *part) string {
	all := fmt.Sprint(p.cpus.Len())
	if p.level != cpus.L3 {
		all = table.Count(p.cpus.Len(), "CPU")
	}
	return fmt.Sprintf("%d of %s open", m.open(p.cpus).Len(), all)
}

// listOf prints a set of CPUs as the kernel does: 0-3,8. It shortens numbers
// with a constant step to 0,2,...,62. They occur on machines whose CPUs
// alternate between the NUMA nodes.
func listOf(s unit.CPUSet) string {
	const least = 5 // numbers that are shortened
	var out, row []string
	begun, last, step := 0, 0, 0
	end := func() {
		if len(row) >= least {
			row = []string{row[0], row[1], "...", row[len(row)-1]}
		}
		out, row = append(out, row...), nil
	}
	for _, item := range strings.Split(s.String(), ",") {
		n, err := strconv.Atoi(item)
		switch {
		case err != nil: // a range
			end()
			out = append(out, item)
			continue
		case len(row) == 0:
			begun = n
		case len(row) == 1:
			step = n - begun
		case n-last != step:
			end()
			begun = n
		}
		row, last = append(row, item), n
	}
	end()
	return strings.Join(out, ",")
}

// shorten cuts out the middle of a long list of CPUs. most is the maximum
// number of characters of the result.
func shorten(list string, most int) string {
	if len(list) <= most {
		return list
	}
	last := list[strings.LastIndexByte(list, ',')+1:]
	room := most - len(last) - len("...,")
	if room < 1 || room > len(list) {
		return list
	}
	return list[:strings.LastIndexByte(list[:room], ',')+1] + "...," + last
}

// wrap breaks a text into lines of at most this width, after spaces and commas.
// It breaks a word that is wider than a line.
func wrap(text string, width float64, measure func(string) float64) []string {
	var lines []string
	line := ""
	flush := func() {
		if line = strings.TrimRight(line, " "); line != "" {
			lines = append(lines, line)
		}
		line = ""
	}
	for word := range pieces(text) {
		if line != "" && measure(strings.TrimRight(line+word, " ")) > width {
			flush()
		}
		for measure(strings.TrimRight(word, " ")) > width { // a word that fills a line
			n := 1
			runes := []rune(word)
			for n < len(runes) && measure(string(runes[:n+1])) <= width {
				n++
			}
			if n >= len(runes) {
				break
			}
			line, word = string(runes[:n]), string(runes[n:])
			flush()
		}
		line += word
	}
	flush()
	return lines
}

// pieces cuts a text after each space and comma.
func pieces(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for text != "" {
			i := strings.IndexAny(text, " ,") + 1
			if i == 0 {
				i = len(text)
			}
			if !yield(text[:i]) {
				return
			}
			text = text[i:]
		}
	}
}
