// Package conformance checks that the simulator and the real node behave in the
// same way. Its named facts say what a kernel refuses, rounds and derives.
// Every fact is checked on both nodes, so that tests on the simulator also hold
// for the kernel. The package also builds topologies and workloads for tests.
package conformance

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Topology builds a machine with the given numbers of sockets, of cores per socket
// and of threads per core. Each socket has one NUMA node and one L3 cache. The
// threads of a core have consecutive CPU numbers, as in QEMU and in some servers.
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

// Split returns the same machine as Topology, with the CPU numbers of most
// machines: the numbers of siblings differ by half the number of CPUs. With 4
// cores, CPUs 0 and 4 share a core.
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
