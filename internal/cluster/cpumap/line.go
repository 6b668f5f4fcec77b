package cpumap

import (
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

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
		case len(at.owners) > 0:
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
