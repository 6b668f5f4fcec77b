// Package cpumap draws the CPUs of a node with their owners: as text, as a
// picture, and as a page; and lists them for programs. It is pure: its caller reads the API.
package cpumap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Node is the part of a node's report that the map of its CPUs shows. The JSON
// keys of all types of the map are documented in docs/kubectl-tenon.md.
type Node struct {
	Name string `json:"node"`
	// Reported is the time of the report, and Made that of the map. Silent is set
	// if the report is so old that it may be wrong now.
	Reported time.Time `json:"reported"`
	Made     time.Time `json:"made"`
	Silent   bool      `json:"silent,omitempty"`
	// Fault says why no pod can own a CPU of the node. It is empty otherwise.
	Fault string `json:"fault,omitempty"`
	// Manager names another program that binds CPUs on the node. It is empty if
	// there is none.
	Manager string `json:"manager,omitempty"`
	// Reserved are the CPUs that no pod may own. Keep is the number of other CPUs
	// that must stay open.
	Keep     int         `json:"keep"`
	Reserved unit.CPUSet `json:"reserved,omitzero"`
	// Refused are the pods on the node that ask for CPUs and got none.
	Refused []Refused `json:"refused,omitempty"`

	Topology node.Topology `json:"-"`
}

// A Refused is a pod to which its node gave no CPUs. The map only lists it.
type Refused struct {
	Pod    string      `json:"pod"`
	UID    string      `json:"uid"`
	Policy cpus.Policy `json:"policy"` // of the CPUs that it asks for
	Code   string      `json:"code,omitempty"`
	Why    string      `json:"why,omitempty"`
}

// A Map holds the CPUs of a node with their owners.
type Map struct {
	node    Node
	owners  []Owner // in the order of their marks
	sockets []*part
	pools   []*Owner // pods whose home is the whole machine
	cells   map[unit.CPU]cell
	m       *pick.Map
	width   int // number of letters of a mark
	caches  int // number of L3 caches; one that several NUMA nodes share counts once
}

// A part is a socket, a NUMA node or an L3 cache. parts are the smaller parts
// in it, such as the L3 caches of a NUMA node.
type part struct {
	level cpus.Level
	name  string
	cpus  unit.CPUSet
	parts []*part
	cores []unit.CPUSet // of an L3 cache
	pools []*Owner      // pods whose home is this part
	grown []*Owner      // pods whose pool has grown into this L3 cache
	load  unit.MilliCPU // CPU that shared work requests in this part and its parts
}

// A cell is one CPU. It has several owners if a pod was bound to CPUs that
// another pod has, and the node has not yet chosen others.
type cell struct {
	owners   []*Owner
	seats    []*Owner
	pools    []*Owner // pods in whose pool the CPU is, if it is open
	reserved bool
}

// isOpen reports whether the CPU is neither owned by a pod nor reserved.
func (c cell) isOpen() bool { return len(c.owners) == 0 && !c.reserved }

// The marks of CPUs that belong to no single pod.
const (
	markOpen      = "."
	markReserved  = "#"
	markShared    = "+" // seats of several pods
	markContested = "!" // own CPU of several pods
	markNone      = "-" // no CPU: stands in the list only
)

// New makes the map of a node.
func New(n Node, owners []Owner) *Map {
	m := &Map{node: n, owners: slices.Clone(owners), cells: map[unit.CPU]cell{}, m: pick.Compile(n.Topology)}
	m.name()
	m.split()
	for i := range m.owners {
		m.place(&m.owners[i])
	}
	return m
}

// name gives each owner its mark. All marks have the same width, so that the
// columns of the text are aligned. Owners with own CPUs come first, ordered by
// their lowest CPU.
func (m *Map) name() {
	slices.SortStableFunc(m.owners, func(a, b Owner) int {
		return cmp.Or(
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(lowest(a.CPUs), lowest(b.CPUs)), strings.Compare(a.Pod, b.Pod))
	})
	owning := 0
	for _, o := range m.owners {
		if o.Policy == cpus.Exclusive {
			owning++
		}
	}
	m.width = 1
	for most := size; most < max(owning, len(m.owners)-owning); most *= size {
		m.width++
	}
	for i := range m.owners {
		o := &m.owners[i]
		o.index = i
		if o.Policy == cpus.Exclusive {
			o.mark = letters('A', i, m.width)
		} else {
			o.mark = letters('a', i, m.width) // not the letters of own CPUs, while others are free
		}
	}
}

// size is the size of the alphabet.
const size = 26

// letters returns the nth name in the list A, B, … Z, or in AA, AB, … ZZ if
// width is 2. After the last name, the list begins again. With the first letter
// a, the names are in lower case.
func letters(first rune, n, width int) string {
	text := ""
	for range width {
		text = string(first+rune(n%size)) + text
		n /= size
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
func (m *Map) split() {
	of := map[unit.CPU]node.LogicalCPU{}
	for _, c := range m.node.Topology.CPUs {
		of[c.ID] = c
	}
	type cache struct {
		socket node.SocketID
		l3     node.CacheID
	}
	cacheOf := func(set unit.CPUSet) cache { return cache{of[lowest(set)].Socket, of[lowest(set)].L3} }
	pieces := map[cache]int{} // more than one if several NUMA nodes share an L3 cache
	for _, l3 := range m.m.Domains(cpus.L3) {
		pieces[cacheOf(l3)]++
	}
	m.caches = len(pieces)
	for _, socket := range m.m.Domains(cpus.Socket) {
		s := &part{level: cpus.Socket, name: fmt.Sprintf("socket %d", of[lowest(socket)].Socket), cpus: socket}
		m.sockets = append(m.sockets, s)
		for _, numa := range m.m.Domains(cpus.NUMA) {
			if !socket.Contains(numa) {
				continue
			}
			n := &part{level: cpus.NUMA, name: fmt.Sprintf("NUMA node %d", of[lowest(numa)].NUMA), cpus: numa}
			s.parts = append(s.parts, n)
			for _, l3 := range m.m.Domains(cpus.L3) {
				if !numa.Contains(l3) {
					continue
				}
				c := &part{level: cpus.L3, name: fmt.Sprintf("L3 %d", of[lowest(l3)].L3), cpus: l3}
				if pieces[cacheOf(l3)] > 1 {
					c.name = "part of " + c.name
				}
				for _, core := range pick.Cores(m.m) {
					if l3.Contains(core) {
						c.cores = append(c.cores, core)
					}
				}
				n.parts = append(n.parts, c)
			}
		}
	}
	for c := range m.node.Reserved.All() {
		m.cells[c] = cell{reserved: true}
	}
}

// place records the CPUs of an owner in the map. Own CPUs must be placed before
// pools, because a pool contains only open CPUs.
func (m *Map) place(o *Owner) {
	set := o.CPUs
	if o.isPool() && set.Empty() {
		set = o.Domain
	}
	for c := range set.All() {
		at := m.cells[c]
		switch {
		case o.Policy == cpus.Exclusive:
			at.owners = append(at.owners, o)
		case o.Policy == cpus.Shared:
			at.seats = append(at.seats, o)
		case at.isOpen():
			at.pools = append(at.pools, o)
		}
		m.cells[c] = at
	}
	if o.Policy == cpus.Exclusive {
		return
	}
	m.settle(o)
	if beside := o.beside(); !beside.Empty() {
		m.eachPart(func(p *part) {
			if p.level == cpus.L3 && !p.cpus.Intersect(beside).Empty() {
				p.grown = append(p.grown, o)
			}
		})
	}
}

// settle finds the part that is the home of a pod with seats or a pool. Several
// parts may have the CPUs of the home, such as a NUMA node and its only L3
// cache. Then the pool belongs to the lowest part, as in pick.Map.LevelOf.
func (m *Map) settle(o *Owner) {
	at, parts := (*part)(nil), m.sockets
	for len(parts) > 0 && !o.Domain.Empty() {
		next := slices.IndexFunc(parts, func(p *part) bool { return p.cpus.Contains(o.Domain) })
		if next < 0 {
			break
		}
		at, parts = parts[next], parts[next].parts
		at.load += o.CPU
	}
	switch {
	case !o.isPool():
	case at == nil:
		m.pools = append(m.pools, o)
	default: // also if the present topology does not have the pool of the report
		at.pools = append(at.pools, o)
	}
}

// mark returns the mark of a CPU.
func (m *Map) mark(c unit.CPU) string {
	switch at := m.cells[c]; {
	case len(at.owners) > 1:
		return m.sign(markContested)
	case len(at.owners) == 1:
		return at.owners[0].mark
	case at.reserved:
		return m.sign(markReserved)
	case len(at.seats) > 1:
		return m.sign(markShared)
	case len(at.seats) == 1:
		return at.seats[0].mark
	}
	return m.sign(markOpen)
}

// sign pads a mark that belongs to no pod to the width of all marks.
func (m *Map) sign(mark string) string { return strings.Repeat(mark, m.width) }

// eachPart calls visit for all parts, beginning with the first socket. It
// visits a part before the parts inside it.
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

// open returns the CPUs of a set that are neither owned by a pod nor reserved.
func (m *Map) open(of unit.CPUSet) unit.CPUSet {
	var set unit.CPUSet
	for c := range of.All() {
		if m.cells[c].isOpen() {
			set.Add(c)
		}
	}
	return set
}

// Offline returns the numbers below the highest CPU that are not online. The
// report lists all CPUs that are online.
func (m *Map) Offline() unit.CPUSet {
	var set unit.CPUSet
	online, next := m.all(), unit.CPU(0)
	for c := range online.All() {
		for ; next < c; next++ {
			set.Add(next)
		}
		next = c + 1
	}
	return set
}

// all returns all CPUs.
func (m *Map) all() unit.CPUSet { return m.m.All() }
