// Package cpumap draws the CPUs of a node with their owners, as text and as a
// picture. It is pure: its caller reads the API.
package cpumap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// An Owner is a pod that holds CPUs of the node.
type Owner struct {
	// Name is the namespace and name of the pod, or its UID if these are not
	// known.
	Name string
	Hold pick.Hold
	// Note tells who chose the CPUs, or why the node did not use the scheduler's choice.
	Note string
	// mark is the letter of the pod in the map: upper case if the pod owns
	// CPUs, otherwise lower case.
	mark string
}

// A Map holds the CPUs of a node with their owners.
type Map struct {
	node     string
	state    string // age of the report, for the heading
	reserved unit.CPUSet
	keep     int
	owners   []Owner // in the order of their marks
	sockets  []*part
	pools    []*Owner // pods whose home is the whole machine
	cells    map[unit.CPU]cell
	m        *pick.Map
}

// A part is a socket, a NUMA node or an L3 cache. parts are the smaller parts
// in it, such as the L3 caches of a NUMA node.
type part struct {
	level pick.Level
	name  string
	cpus  unit.CPUSet
	parts []*part
	cores []unit.CPUSet // of an L3 cache
	pools []*Owner      // pods whose home is exactly this part
	load  unit.MilliCPU // CPU that shared work requests in this part and its parts
}

// A cell is one CPU.
type cell struct {
	owner    *Owner // the pod that owns the CPU
	seats    []*Owner
	reserved bool
}

// The marks of CPUs that no pod owns.
const (
	markOpen     = "."
	markReserved = "#"
	markShared   = "+" // seats of several pods
)

// New makes the map of a node. state is the age of the report, as in "reported
// 4s ago".
func New(name, state string, t node.Topology, reserved unit.CPUSet, keep int, owners []Owner) *Map {
	m := &Map{
		node: name, state: state, reserved: reserved, keep: keep, owners: slices.Clone(owners), cells: map[unit.CPU]cell{}, m: pick.Compile(t),
	}
	m.name()
	m.split(t)
	for i := range m.owners {
		m.place(&m.owners[i])
	}
	return m
}

// name gives each owner its mark. Owners with own CPUs come first, ordered by
// their lowest CPU.
func (m *Map) name() {
	slices.SortStableFunc(m.owners, func(a, b Owner) int {
		return cmp.Or(
			cmp.Compare(a.Hold.Grade, b.Hold.Grade), cmp.Compare(lowest(a.Hold.CPUs), lowest(b.Hold.CPUs)), strings.Compare(a.Name, b.Name))
	})
	upper, lower := 0, 0
	for i := range m.owners {
		o := &m.owners[i]
		if o.Hold.Grade == pick.Own {
			o.mark = letters('A', upper)
			upper++
		} else {
			o.mark = letters('a', lower)
			lower++
		}
	}
}

// letters returns the nth name in the list A, B, … Z, BA, BB, … first takes the
// place of A, so that the list may also be in lower case.
func letters(first rune, n int) string {
	const size = 26
	text := string(first + rune(n%size))
	for n /= size; n > 0; n /= size {
		text = string(first+rune(n%size)) + text
	}
	return text
}

func lowest(s unit.CPUSet) unit.CPU {
	for c := range s.All() {
		return c
	}
	return unit.MaxCPUs
}

// split builds the tree of sockets, NUMA nodes and L3 caches.
func (m *Map) split(t node.Topology) {
	of := map[unit.CPU]node.LogicalCPU{}
	for _, c := range t.CPUs {
		of[c.ID] = c
	}
	for _, socket := range m.m.Pools(pick.Socket) {
		s := &part{level: pick.Socket, name: fmt.Sprintf("socket %d", of[lowest(socket)].Socket), cpus: socket}
		m.sockets = append(m.sockets, s)
		for _, numa := range m.m.Pools(pick.NUMA) {
			if !socket.Contains(numa) {
				continue
			}
			n := &part{level: pick.NUMA, name: fmt.Sprintf("NUMA node %d", of[lowest(numa)].NUMA), cpus: numa}
			s.parts = append(s.parts, n)
			for _, l3 := range m.m.Pools(pick.L3) {
				if !numa.Contains(l3) {
					continue
				}
				c := &part{level: pick.L3, name: fmt.Sprintf("L3 %d", of[lowest(l3)].L3), cpus: l3}
				for _, core := range pick.Cores(m.m) {
					if l3.Contains(core) {
						c.cores = append(c.cores, core)
					}
				}
				n.parts = append(n.parts, c)
			}
		}
	}
	for c := range m.reserved.All() {
		m.cells[c] = cell{reserved: true}
	}
}

// place records in the map what an owner holds.
func (m *Map) place(o *Owner) {
	for c := range o.Hold.CPUs.All() {
		at := m.cells[c]
		switch o.Hold.Grade {
		case pick.Own:
			at.owner = o
		case pick.Seated:
			at.seats = append(at.seats, o)
		}
		m.cells[c] = at
	}
	if o.Hold.Grade == pick.Own {
		return
	}
	at, parts := (*part)(nil), m.sockets
	for len(parts) > 0 {
		next := slices.IndexFunc(parts, func(p *part) bool { return p.cpus.Contains(o.Hold.Home) })
		if next < 0 {
			break
		}
		at, parts = parts[next], parts[next].parts
		at.load += o.Hold.Request
		if at.cpus == o.Hold.Home && o.Hold.Grade == pick.Pooled {
			at.pools = append(at.pools, o)
			return
		}
	}
	switch {
	case o.Hold.Grade != pick.Pooled:
	case at == nil:
		m.pools = append(m.pools, o)
	default: // the present topology does not have the pool of the report
		at.pools = append(at.pools, o)
	}
}

// mark returns the mark of a CPU.
func (m *Map) mark(c unit.CPU) string {
	switch at := m.cells[c]; {
	case at.owner != nil:
		return at.owner.mark
	case at.reserved:
		return markReserved
	case len(at.seats) > 1:
		return markShared
	case len(at.seats) == 1:
		return at.seats[0].mark
	}
	return markOpen
}

// countOpen returns how many CPUs of a part are neither owned by a pod nor
// reserved.
func (m *Map) countOpen(p *part) int {
	n := 0
	for c := range p.cpus.All() {
		if at := m.cells[c]; at.owner == nil && !at.reserved {
			n++
		}
	}
	return n
}

// heading returns the first line of the map.
func (m *Map) heading() string {
	open, nodes := 0, 0
	for _, s := range m.sockets {
		open += m.countOpen(s)
		nodes += len(s.parts)
	}
	text := fmt.Sprintf("%s: %d CPUs, %d open", m.node, m.m.Len(), open)
	if m.keep > 0 {
		text += fmt.Sprintf(" (%d must stay open)", m.keep)
	}
	text += fmt.Sprintf("; %s, %s, %s", count(len(m.sockets), "socket"), count(nodes, "NUMA node"), count(len(m.m.Pools(pick.L3)), "L3 cache"))
	text += poolsOf(m.pools)
	if m.state != "" {
		text += "; " + m.state
	}
	return text
}

// count prints a number and a noun, such as "2 CPUs".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// describe prints what an owner holds.
func (m *Map) describe(o *Owner) string {
	h := o.Hold
	text := ""
	switch h.Grade {
	case pick.Own:
		text = fmt.Sprintf("%s: %v", count(h.CPUs.Len(), "CPU"), h.CPUs)
	case pick.Seated:
		text = fmt.Sprintf("%s: %v, of one %v, requests %v", count(h.CPUs.Len(), "CPU"), h.CPUs, m.m.LevelOf(h.Home), h.Request)
	default:
		text = fmt.Sprintf("the open CPUs of one %v (%v), requests %v", m.m.LevelOf(h.Home), h.Home, h.Request)
	}
	if o.Note != "" {
		text += "; " + o.Note
	}
	return text
}
