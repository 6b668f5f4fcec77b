// Package treeorder orders the CPUs of a topology by socket, NUMA node, L3 cache
// and core, so that each of these is a range of the list.
package treeorder

import (
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

type (
	cacheKey struct {
		numa   node.NUMANode
		l3     node.CacheID
		socket node.SocketID
	}
	coreKey struct {
		cacheKey
		core node.CoreID
	}
)

func cacheOf(c node.LogicalCPU) cacheKey { return cacheKey{c.NUMA, c.L3, c.Socket} }
func coreOf(c node.LogicalCPU) coreKey   { return coreKey{cacheOf(c), c.Core} }

// SameCache reports whether two CPUs share an L3 cache. The CPUs of two NUMA
// nodes do not, even if the hardware has one cache for both.
func SameCache(a, b node.LogicalCPU) bool { return cacheOf(a) == cacheOf(b) }

// SameCore reports whether two CPUs are of the same core and share an L3 cache.
func SameCore(a, b node.LogicalCPU) bool { return coreOf(a) == coreOf(b) }

// Sort returns the CPUs in the order of the tree, and the socket of each NUMA
// node. Caches and cores are in the order of their lowest CPU.
func Sort(cpus []node.LogicalCPU) ([]node.LogicalCPU, map[node.NUMANode]node.SocketID) {
	socket := socketsOf(cpus)
	first := make(map[coreKey]unit.CPU, len(cpus)) // the lowest CPU of each core
	cache := map[cacheKey]unit.CPU{}
	for _, c := range cpus {
		k, l := coreOf(c), cacheOf(c)
		if low, known := first[k]; !known || c.ID < low {
			first[k] = c.ID
		}
		if low, known := cache[l]; !known || c.ID < low {
			cache[l] = c.ID
		}
	}
	order := make([][6]int, len(cpus)) // the last element is the index in cpus
	for i, c := range cpus {
		order[i] = [...]int{int(socket[c.NUMA]), int(c.NUMA), int(cache[cacheOf(c)]), int(first[coreOf(c)]), int(c.ID), i}
	}
	slices.SortFunc(order, func(a, b [6]int) int { return slices.Compare(a[:], b[:]) })
	sorted := make([]node.LogicalCPU, len(order))
	for i, o := range order {
		sorted[i] = cpus[o[5]]
	}
	return sorted, socket
}

// Cut divides a set into parts of the given sizes. sorted is the result of Sort. The
// CPUs of a part are neighbours. If CPUs remain, they belong to no part.
func Cut(sorted []node.LogicalCPU, set unit.CPUSet, sizes []int) []unit.CPUSet {
	parts := make([]unit.CPUSet, len(sizes))
	part, taken := 0, 0
	for _, c := range sorted {
		if !set.Has(c.ID) {
			continue
		}
		for part < len(sizes) && taken >= sizes[part] {
			part, taken = part+1, 0
		}
		if part == len(sizes) {
			break
		}
		parts[part].Add(c.ID)
		taken++
	}
	return parts
}

// socketsOf returns the socket of each NUMA node. If two sockets share a NUMA
// node, as in many virtual machines, they count as one socket.
func socketsOf(cpus []node.LogicalCPU) map[node.NUMANode]node.SocketID {
	of := map[node.NUMANode]node.SocketID{}
	joined := map[node.SocketID]node.SocketID{}
	root := func(s node.SocketID) node.SocketID {
		for {
			up, known := joined[s]
			if !known || up == s {
				return s
			}
			s = up
		}
	}
	for _, c := range cpus {
		if s, known := of[c.NUMA]; known {
			a, b := root(s), root(c.Socket)
			joined[max(a, b)] = min(a, b)
		} else {
			of[c.NUMA] = c.Socket
		}
	}
	for n, s := range of {
		of[n] = root(s)
	}
	return of
}
