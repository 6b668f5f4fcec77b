package main

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A hardware is a kind of node. Its numbers are: sockets, NUMA nodes of a
// socket, L3 caches of a NUMA node, cores of a cache, and threads of a core.
type hardware struct {
	name                                   string
	sockets, nodes, caches, cores, threads int
}

// kinds are the compared kinds of nodes.
var kinds = []hardware{
	{"intel", 2, 1, 1, 26, 2}, // one L3 cache and one NUMA node a socket
	{"amd", 2, 2, 4, 8, 2},    // two NUMA nodes a socket (NPS2), L3 caches of eight cores
	{"arm", 2, 2, 1, 32, 1},   // no SMT
}

// smallMachine is the machine for the part sequences (see main.go).
var smallMachine = hardware{"small", 2, 1, 4, 4, 2}

// A level is a kind of group of CPUs: L3 cache, NUMA node, socket or machine.
type level int

const (
	cacheLevel level = iota
	numaLevel
	socketLevel
	machineLevel
	levels
)

// A frame describes a kind of node. CPU numbers are the indexes of its tables.
// The second threads of all cores have the upper half of the CPU numbers, as
// with Linux on x86.
type frame struct {
	hardware
	topology node.Topology
	cpus     int
	coreOf   []int
	cores    [][]int
	at       [levels][]int // group by CPU
	groups   [levels][][]int
}

func newFrame(h hardware) *frame {
	perCache := h.cores
	cores := h.sockets * h.nodes * h.caches * perCache
	f := &frame{hardware: h, cpus: cores * h.threads, cores: make([][]int, cores)}
	f.coreOf = make([]int, f.cpus)
	sizes := [levels]int{h.sockets * h.nodes * h.caches, h.sockets * h.nodes, h.sockets, 1}
	for l := range levels {
		f.at[l], f.groups[l] = make([]int, f.cpus), make([][]int, sizes[l])
	}
	for c := range f.cpus {
		core := c % cores
		cache := core / perCache
		f.coreOf[c] = core
		f.cores[core] = append(f.cores[core], c)
		for l, g := range [levels]int{cache, cache / h.caches, cache / h.caches / h.nodes, 0} {
			f.at[l][c] = g
			f.groups[l][g] = append(f.groups[l][g], c)
		}
		f.topology.CPUs = append(f.topology.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(core), L3: node.CacheID(cache),
			NUMA: node.NUMANode(cache / h.caches), Socket: node.SocketID(cache / h.caches / h.nodes),
		})
	}
	return f
}

// reservedCPUs returns the CPUs of the first core, which no claim gets. All rivals reserve them,
// because the policy of the kubelet requires reserved CPUs.
func (f *frame) reservedCPUs() unit.CPUSet {
	var s unit.CPUSet
	for _, c := range f.cores[0] {
		s = s.With(unit.CPU(c))
	}
	return s
}

// size returns the number of CPUs in a group of the level.
func (f *frame) size(l level) int { return len(f.groups[l][0]) }

// A rating tells how good a choice of CPUs is. It counts NUMA nodes, sockets,
// caches, CPUs that share a core with CPUs outside the choice, and free CPUs
// that are left in the caches. Of two ratings, the first count that differs
// decides. The smaller count is better.
type rating [5]int

// rate rates a choice of CPUs (set). free marks the CPUs of the machine that
// were free before the choice. rate shares no code with any rival.
func (f *frame) rate(free []bool, set unit.CPUSet) rating {
	var r rating
	for i, l := range []level{numaLevel, socketLevel, cacheLevel} {
		seen := map[int]bool{}
		for c := range set.All() {
			seen[f.at[l][c]] = true
		}
		r[i] = len(seen)
		if l == cacheLevel {
			for c := range f.cpus {
				if free[c] && !set.Has(unit.CPU(c)) && seen[f.at[l][c]] {
					r[4]++
				}
			}
		}
	}
	for c := range set.All() {
		for _, other := range f.cores[f.coreOf[c]] {
			if !set.Has(unit.CPU(other)) {
				r[3]++
				break
			}
		}
	}
	return r
}

// A host is the state of one node. The rivals of this package read the free
// CPUs from it.
type host struct {
	*frame
	free   []bool
	open   [levels][]int // free CPUs by group
	whole  [levels][]int // CPUs of wholly free cores by group
	shared unit.MilliCPU // request of pods without CPUs of their own
	usable int           // CPUs that are not reserved
	closed unit.CPUSet   // CPUs that are not free
}

// newHost returns a node. All its CPUs are free, except the closed ones.
func newHost(f *frame, closed unit.CPUSet) *host {
	h := &host{frame: f, free: make([]bool, f.cpus), usable: f.cpus - closed.Len()}
	for l := range levels {
		h.open[l], h.whole[l] = make([]int, len(f.groups[l])), make([]int, len(f.groups[l]))
	}
	for c := range f.cpus {
		h.closed = h.closed.With(unit.CPU(c))
	}
	for c := range f.cpus {
		if !closed.Has(unit.CPU(c)) {
			h.set(c, true)
		}
	}
	return h
}

// set records whether a CPU is free.
func (h *host) set(c int, free bool) {
	before := h.wholeCore(c)
	h.free[c] = free
	after := h.wholeCore(c)
	if free {
		h.closed = h.closed.Minus(unit.CPUSetOf(unit.CPU(c)))
	} else {
		h.closed = h.closed.With(unit.CPU(c))
	}
	for l := range levels {
		g := h.at[l][c]
		if free {
			h.open[l][g]++
		} else {
			h.open[l][g]--
		}
		switch {
		case before && !after:
			h.whole[l][g] -= h.threads
		case after && !before:
			h.whole[l][g] += h.threads
		}
	}
}

func (h *host) wholeCore(c int) bool {
	for _, other := range h.cores[h.coreOf[c]] {
		if !h.free[other] {
			return false
		}
	}
	return true
}

// spare returns the amount of CPU that no pod requests. Schedulers without
// knowledge of the topology know only this amount.
func (h *host) spare() unit.MilliCPU { return unit.CPUs(h.open[machineLevel][0]) - h.shared }

// countStranded returns the number of stranded CPUs. These are the CPUs that
// would still be free if claims of n CPUs filled each cache.
func (h *host) countStranded(n int) int {
	all := 0
	for _, free := range h.open[cacheLevel] {
		all += free % n
	}
	return all
}
