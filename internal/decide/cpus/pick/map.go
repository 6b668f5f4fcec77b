// Package pick chooses CPUs on one machine for workloads that demand them: CPUs
// of their own, seats, or a pool. A choice is a value and has no effect:
// callers compare it, print it, or turn it into a want.
package pick

import (
	"cmp"
	"iter"
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/treeorder"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Map is a topology in a form in which choices are fast. Its CPUs are ordered
// so that each domain, and each core, is a range of positions. A Map does not
// change, so all nodes with the same hardware can share it.
type Map struct {
	hash    cpus.Hash
	cpus    []node.LogicalCPU // by position
	at      []int32           // position by CPU number; -1: offline
	words   int               // number of words of a mask
	cores   []span
	domains []domain
	// first holds the index of the first domain of each level. The last entry
	// is the number of domains.
	first [cpus.Levels + 1]int32
	sizes []int32 // the numbers of CPUs that cores have, largest first
	// measures lists the ways to count CPUs: any CPU, one CPU of each core, and
	// whole cores of each size.
	measures []measure
	kinds    []mask // the CPUs of each kind of core, fastest first; nil if there is only one kind
	// nodeSizes are the numbers of CPUs of the NUMA nodes, largest first.
	nodeSizes []int32
}

// A span is the part of a physical core that is in one L3 cache, as a range of
// positions.
type span struct{ lo, hi int32 }

// A domain is a node of the tree of domains (see Level).
type domain struct {
	lo, hi       int32 // its CPUs, by position
	core, last   int32 // its cores
	up           int32 // the domain above it; -1: none
	child, after int32 // the domains of the next level below it: child to after−1
}

// Compile makes the Map of a topology. A topology without CPUs has one domain,
// which is empty.
func Compile(t node.Topology) *Map {
	cpus, socket := treeorder.Sort(t.CPUs)
	m := &Map{cpus: cpus, words: (len(cpus) + 63) / 64}
	for i, c := range cpus {
		for len(m.at) <= int(c.ID) {
			m.at = append(m.at, -1)
		}
		m.at[c.ID] = int32(i)
	}
	fillCores(m)
	m.fillDomains(socket)
	fillKinds(m)
	fillSizes(m)
	m.hash = hashOf(m, socket)
	return m
}

func fillCores(m *Map) {
	for i, c := range m.cpus {
		if i == 0 || !treeorder.SameCore(m.cpus[i-1], c) {
			m.cores = append(m.cores, span{int32(i), int32(i)})
		}
		m.cores[len(m.cores)-1].hi++
	}
	for _, c := range m.cores {
		if size := c.hi - c.lo; !slices.Contains(m.sizes, size) {
			m.sizes = append(m.sizes, size)
		}
	}
	slices.SortFunc(m.sizes, func(a, b int32) int { return cmp.Compare(b, a) })
	m.measures = []measure{{kind: anyCPU}, {kind: oneACore}}
	for _, size := range m.sizes {
		m.measures = append(m.measures, measure{wholeCores, size})
	}
}

// sizeAt returns the index of a core size in the list of sizes.
func (m *Map) sizeAt(size int32) int {
	i := 0
	for m.sizes[i] != size {
		i++
	}
	return i
}

func (m *Map) fillDomains(socket map[node.NUMANode]node.SocketID) {
	same := [cpus.Levels]func(a, b node.LogicalCPU) bool{
		cpus.Machine: func(_, _ node.LogicalCPU) bool { return true },
		cpus.Socket:  func(a, b node.LogicalCPU) bool { return socket[a.NUMA] == socket[b.NUMA] },
		cpus.NUMA:    func(a, b node.LogicalCPU) bool { return a.NUMA == b.NUMA },
		cpus.L3:      treeorder.SameCache,
	}
	for l := range cpus.Levels {
		m.first[l] = int32(len(m.domains))
		for i, c := range m.cpus {
			if i == 0 || !same[l](m.cpus[i-1], c) {
				m.domains = append(m.domains, domain{lo: int32(i), hi: int32(i), up: -1})
			}
			m.domains[len(m.domains)-1].hi++
		}
		if l == cpus.Machine && len(m.cpus) == 0 {
			m.domains = append(m.domains, domain{up: -1})
		}
	}
	m.first[cpus.Levels] = int32(len(m.domains))
	for l := range cpus.Levels {
		k, up := int32(0), int32(-1)
		if l > cpus.Machine {
			up = m.first[l-1]
		}
		for i := m.first[l]; i < m.first[l+1]; i++ {
			p := &m.domains[i]
			p.core = k
			for k < int32(len(m.cores)) && m.cores[k].lo < p.hi {
				k++
			}
			p.last = k
			if up < 0 {
				continue
			}
			for m.domains[up].hi <= p.lo {
				up++
			}
			p.up = up
			if u := &m.domains[up]; u.after == 0 {
				u.child, u.after = i, i+1
			} else {
				u.after = i + 1
			}
		}
	}
}

func fillSizes(m *Map) {
	for _, p := range m.domains[m.first[cpus.NUMA]:m.first[cpus.NUMA+1]] {
		m.nodeSizes = append(m.nodeSizes, p.hi-p.lo)
	}
	slices.SortFunc(m.nodeSizes, func(a, b int32) int { return cmp.Compare(b, a) })
}

func fillKinds(m *Map) {
	var kinds []node.CoreKind
	for _, c := range m.cpus {
		if !slices.Contains(kinds, c.Kind) {
			kinds = append(kinds, c.Kind)
		}
	}
	if len(kinds) < 2 {
		return
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		of := m.mask()
		for i, c := range m.cpus {
			if c.Kind == k {
				of.set(int32(i))
			}
		}
		m.kinds = append(m.kinds, of)
	}
}

// hashOf hashes how the CPUs are divided into cores, caches, nodes and sockets,
// with FNV-1a. It ignores the IDs of cores, caches and sockets, because the
// kernel may number the same hardware in another way.
func hashOf(m *Map, socket map[node.NUMANode]node.SocketID) cpus.Hash {
	h := uint64(14695981039346656037)
	add := func(v int) {
		for range 4 {
			h = (h ^ uint64(v&0xff)) * 1099511628211
			v >>= 8
		}
	}
	k, p := 0, m.first[cpus.L3]
	sockets := map[node.SocketID]int{}
	for i, c := range m.cpus {
		for m.cores[k].hi <= int32(i) {
			k++
		}
		for m.domains[p].hi <= int32(i) {
			p++
		}
		if _, known := sockets[socket[c.NUMA]]; !known {
			sockets[socket[c.NUMA]] = len(sockets)
		}
		for _, v := range [...]int{int(c.ID), k, int(p), int(c.NUMA), sockets[socket[c.NUMA]], int(c.Kind)} {
			add(v)
		}
	}
	return cpus.Hash(h)
}

// Hash returns the hash of the topology.
func (m *Map) Hash() cpus.Hash { return m.hash }

// Len returns the number of CPUs.
func (m *Map) Len() int { return len(m.cpus) }

// All returns the set of all CPUs.
func (m *Map) All() unit.CPUSet { return m.setOf(0) }

// SameTopology reports whether the map's topology has the same CPUs as t.
func (m *Map) SameTopology(t node.Topology) bool {
	return len(t.CPUs) == len(m.cpus) && Compile(t).hash == m.hash
}

// setOf returns all CPUs of a domain.
func (m *Map) setOf(p int32) unit.CPUSet {
	var set unit.CPUSet
	for _, c := range m.cpus[m.domains[p].lo:m.domains[p].hi] {
		set.Add(c.ID)
	}
	return set
}

// levelOf returns the level of a domain.
func (m *Map) levelOf(p int32) cpus.Level {
	l := cpus.Machine
	for p >= m.first[l+1] {
		l++
	}
	return l
}

// smallestDomain returns the smallest domain that contains a set. If several domains
// have the same CPUs, it returns the one that is highest in the tree. CPUs that
// are offline do not count.
func (m *Map) smallestDomain(set unit.CPUSet) int32 {
	lo, hi := int32(-1), int32(0)
	for c := range set.All() {
		if i := m.position(c); i >= 0 {
			if lo < 0 || i < lo {
				lo = i
			}
			hi = max(hi, i+1)
		}
	}
	at := int32(0)
	for lo >= 0 {
		next := int32(-1)
		for i := m.domains[at].child; i < m.domains[at].after; i++ {
			if m.domains[i].lo <= lo && hi <= m.domains[i].hi {
				next = i
			}
		}
		if next < 0 {
			break
		}
		at = next
	}
	for up := m.domains[at].up; up >= 0 && m.domains[up].lo == m.domains[at].lo && m.domains[up].hi == m.domains[at].hi; up = m.domains[at].up {
		at = up
	}
	return at
}

// position returns the position of a CPU. It returns -1 if the CPU is offline.
func (m *Map) position(c unit.CPU) int32 {
	if c < 0 || int(c) >= len(m.at) {
		return -1
	}
	return m.at[c]
}

// Cut divides a set into parts of the given sizes (see treeorder.Cut).
func (m *Map) Cut(set unit.CPUSet, sizes []int) []unit.CPUSet {
	return treeorder.Cut(m.cpus, set, sizes)
}

// Nodes iterates over the NUMA nodes in ascending order. With each node it
// yields the part of the set that is on this node.
func (m *Map) Nodes(set unit.CPUSet) iter.Seq2[node.NUMANode, unit.CPUSet] {
	return func(yield func(node.NUMANode, unit.CPUSet) bool) {
		for p := m.first[cpus.NUMA]; p < m.first[cpus.NUMA+1]; p++ {
			cpus := set.Intersect(m.setOf(p))
			if !cpus.Empty() && !yield(m.cpus[m.domains[p].lo].NUMA, cpus) {
				return
			}
		}
	}
}
