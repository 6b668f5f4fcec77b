// Package conformance checks that the simulator and the real node behave in the
// same way. Its named facts say what a kernel refuses, rounds and derives, and
// both nodes must show each fact. So the kernel behaves as tests on the
// simulator assume. The package also builds topologies and workloads for tests.
package conformance

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Topology builds a machine of sockets × cores × threads with one NUMA node and
// one L3 cache per socket. The threads of a core have consecutive CPU numbers,
// as in QEMU and in servers with adjacent siblings.
func Topology(sockets, cores, threads int) node.Topology {
	var t node.Topology
	for s := range sockets {
		for c := range cores {
			for range threads {
				t.CPUs = append(t.CPUs, node.LogicalCPU{
					ID:     unit.CPU(len(t.CPUs)),
					Core:   node.CoreID(s*cores + c),
					L3:     node.CacheID(s),
					NUMA:   node.NUMANode(s),
					Socket: node.SocketID(s),
				})
			}
		}
	}
	return t
}

// Flat builds a machine of n CPUs without SMT, in one socket.
func Flat(n int) node.Topology { return Topology(1, n, 1) }

// Split returns the same machine as Topology, with the CPU numbers that most
// machines have: the numbers of siblings differ by half the number of CPUs.
// With 4 cores, CPUs 0 and 4 share a core.
func Split(sockets, cores, threads int) node.Topology {
	var t node.Topology
	for range threads {
		for core := range sockets * cores {
			s := core / cores
			t.CPUs = append(t.CPUs, node.LogicalCPU{
				ID:     unit.CPU(len(t.CPUs)),
				Core:   node.CoreID(core),
				L3:     node.CacheID(s),
				NUMA:   node.NUMANode(s),
				Socket: node.SocketID(s),
			})
		}
	}
	return t
}
