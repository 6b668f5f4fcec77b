package cpumap

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A Page is a map for programs (kubectl tenon map -o json).
type Page struct {
	Node
	Online  int     `json:"online"`
	Offline string  `json:"offline,omitempty"`
	Open    int     `json:"open"`
	Caches  []Cache `json:"caches"`
	CPUs    []CPU   `json:"cpus"`
	Owners  []Owner `json:"owners"` // in the order of their marks
}

// A Cache is an L3 cache, or the part of it that is in one NUMA node.
type Cache struct {
	Socket int      `json:"socket"`
	NUMA   int      `json:"numa"`
	L3     int      `json:"l3"`
	CPUs   string   `json:"cpus"`
	Cores  []string `json:"cores"`
	Open   int      `json:"open"`
}

// Page returns the map as data.
func (m *Map) Page() Page {
	p := Page{Node: m.node, Online: m.m.Len(), Offline: m.Offline().String(), Open: m.open(m.all()).Len(), CPUs: m.CPUs(), Owners: m.owners}
	of := map[unit.CPU]CPU{}
	for _, c := range p.CPUs {
		of[unit.CPU(c.CPU)] = c
	}
	m.eachPart(func(part *part) {
		if part.level != cpus.L3 {
			return
		}
		first := of[lowest(part.cpus)]
		cache := Cache{Socket: first.Socket, NUMA: first.NUMA, L3: first.L3, CPUs: part.cpus.String(), Open: m.open(part.cpus).Len()}
		for _, core := range part.cores {
			cache.Cores = append(cache.Cores, core.String())
		}
		p.Caches = append(p.Caches, cache)
	})
	return p
}

// A CPU is one CPU of a map, with its place and its pods.
type CPU struct {
	CPU    int `json:"cpu"`
	Core   int `json:"core"` // the lowest CPU of the core
	L3     int `json:"l3"`   // each socket may have one of this number
	NUMA   int `json:"numa"`
	Socket int `json:"socket"`
	// Kind is the kind of core: 0 is the fastest of the node.
	Kind     int  `json:"kind,omitempty"`
	Open     bool `json:"open"`
	Reserved bool `json:"reserved,omitempty"`
	// Owners has more than one pod if the node has not yet chosen other CPUs for
	// a pod whose CPUs another pod had already. Seats are the pods that have a
	// seat on the CPU, and Pools those in whose pool it is.
	Owners []string `json:"owners,omitempty"`
	Seats  []string `json:"seats,omitempty"`
	Pools  []string `json:"pools,omitempty"`
}

// CPUs returns the online CPUs in ascending order.
func (m *Map) CPUs() []CPU {
	core := map[unit.CPU]unit.CPU{}
	for _, set := range pick.Cores(m.m) {
		for c := range set.All() {
			core[c] = lowest(set)
		}
	}
	all := []CPU{}
	for _, c := range m.node.Topology.CPUs {
		at := m.cells[c.ID]
		all = append(all, CPU{
			CPU: int(c.ID), Core: int(core[c.ID]), L3: int(c.L3), NUMA: int(c.NUMA), Socket: int(c.Socket), Kind: int(c.Kind),
			Open: at.isOpen(), Reserved: at.reserved, Owners: namesOf(at.owners), Seats: namesOf(at.seats), Pools: namesOf(at.pools),
		})
	}
	slices.SortFunc(all, func(a, b CPU) int { return cmp.Compare(a.CPU, b.CPU) })
	return all
}
