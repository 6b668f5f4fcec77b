package cpumap

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// reported and drawn are the times of the report and of the map in all scenes.
var (
	reported = time.Date(2026, 3, 1, 13, 59, 50, 0, time.FixedZone("CET", 2*3600))
	drawn    = reported.Add(10 * time.Second)
)

// machine returns a topology with these numbers of sockets, caches of a socket,
// cores of a cache, and threads of a core. Like Linux on most servers, it
// numbers the first threads of all cores before the second threads.
func machine(sockets, caches, cores, threads int) node.Topology {
	var t node.Topology
	all := sockets * caches * cores
	for c := range all * threads {
		core := c % all
		socket := core / cores / caches
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(core), L3: node.CacheID(core / cores), NUMA: node.NUMANode(socket), Socket: node.SocketID(socket),
		})
	}
	return t
}

// set returns the CPUs of a list in the format of the kernel.
func set(list string) unit.CPUSet {
	s, err := unit.ParseCPUSet(list)
	if err != nil {
		panic(err)
	}
	return s
}

func own(name, list string) Owner {
	return Owner{Pod: name, Policy: cpus.Exclusive, CPUs: set(list)}
}

func seats(name, list, domain string) Owner {
	return Owner{Pod: name, Policy: cpus.Shared, CPUs: set(list), Domain: set(domain), CPU: 500}
}

func pool(name, list, domain string) Owner {
	return Owner{Pod: name, Policy: cpus.Pool, CPUs: set(list), Domain: set(domain), CPU: 4000}
}

// without returns a topology in which some CPUs are offline.
func without(t node.Topology, list string) node.Topology {
	var left node.Topology
	for _, c := range t.CPUs {
		if !set(list).Has(c.ID) {
			left.CPUs = append(left.CPUs, c)
		}
	}
	return left
}

// of returns the map of a node.
func of(t node.Topology, reserved string, owners ...Owner) *Map {
	return New(Node{Name: "worker-1", Topology: t, Reserved: set(reserved), Keep: 1, Reported: reported, Made: drawn}, owners)
}

// long returns a name with n letters, or more.
func long(n int) string {
	return "team-of-payments-in-production/" + strings.Repeat("checkout-", max(n-36, 0)/9) + "0123456789"
}

// scenes are the maps with which the tests work.
var scenes = map[string]func() *Map{
	"2 CPUs": func() *Map {
		return of(machine(1, 1, 2, 1), "", own("default/db", "1"), seats("default/cs", "0", "0-1"), pool("default/burst", "0", "0-1"))
	},
	"16 CPUs": func() *Map {
		return of(machine(1, 2, 4, 2), "7",
			own("shop/db-0", "0-1,8-9"), own("shop/cache-0", "2"), seats("shop/web-0", "10-11", "0-3,8-11"), seats("shop/web-1", "3,11", "0-3,8-11"),
			pool("shop/encode-0", "4-6,12-15", "4-7,12-15"))
	},
	"256 CPUs": func() *Map {
		owners := []Owner{pool("shop/burst-0", "120-127,248-255", "120-127,248-255"), seats("shop/web-0", "100-103", "96-103,224-231"), seats("shop/web-1", "102,230", "96-103,224-231")}
		for i := range 34 {
			owners = append(owners, own(fmt.Sprintf("shop/db-%d", i), fmt.Sprintf("%d-%d,%d-%d", 2*i+2, 2*i+3, 2*i+130, 2*i+131)))
		}
		return of(machine(2, 8, 8, 2), "0,128", owners...)
	},
	"long names": func() *Map {
		return of(machine(1, 2, 4, 2), "7",
			own(long(317), "0-1,8-9"), own(long(70), "2"), seats(long(60), "10-11", "0-3,8-11"), seats("shop/web-1", "3,11", "0-3,8-11"), pool(strings.Repeat("m", 63)+"/"+strings.Repeat("w", 253), "4-6,12-15", "4-7,12-15"))
	},
	"no owners": func() *Map { return of(machine(1, 2, 4, 2), "") },
	"no CPUs":   func() *Map { return of(node.Topology{}, "") },
	"SMT off": func() *Map {
		return of(without(machine(1, 2, 4, 2), "8-15"), "0", own("shop/db-0", "1-2"), own("shop/db-1", "3,12"))
	},
	"one sibling offline": func() *Map {
		return of(without(machine(1, 2, 4, 2), "8,12-13"), "0", own("shop/db-0", "1-2"))
	},
	"one L3": func() *Map {
		return of(machine(1, 1, 64, 2), "0,64", own("shop/db-0", "1-16,65-80"), pool("shop/encode-0", "0-127", "0-127"))
	},
	"one L3, many owners": func() *Map {
		var owners []Owner
		for i := range 30 {
			owners = append(owners, own(fmt.Sprintf("shop/db-%d", i), fmt.Sprintf("%d,%d", i+1, i+65)))
		}
		return of(machine(1, 1, 64, 2), "", owners...)
	},
	"sub-NUMA": func() *Map {
		t := machine(2, 1, 16, 2)
		for i := range t.CPUs {
			t.CPUs[i].NUMA = node.NUMANode(int(t.CPUs[i].Core) / 8)
		}
		return of(t, "0,32", own("shop/db-0", "1-3,33-35"), pool("shop/encode-0", "8-15,40-47", "8-15,40-47"), pool("shop/encode-1", "4-15,36-47", "0-15,32-47"))
	},
	"alternating": func() *Map { // the numbers of the CPUs alternate between the NUMA nodes
		t := machine(2, 1, 24, 2)
		for i := range t.CPUs {
			c := &t.CPUs[i]
			c.Core = node.CoreID(i % 48)
			c.Socket, c.NUMA, c.L3 = node.SocketID(i%2), node.NUMANode(i%2), node.CacheID(i%2)
		}
		return of(t, "0,48", own("shop/db-0", "2,4,6,8,10,12,50,52,54,56,58,60"))
	},
	"two kinds of cores": func() *Map {
		t := without(machine(1, 1, 12, 2), "16-23")
		for i := range t.CPUs {
			if t.CPUs[i].Core >= 4 {
				t.CPUs[i].Kind = 1
			}
		}
		return of(t, "", own("shop/db-0", "0,12"))
	},
	"many pools": func() *Map {
		owners := []Owner{pool("shop/all-0", "0-15", "0-31"), seats("shop/web-0", "0,16", "0-7,16-23")}
		for i := range 30 {
			owners = append(owners, pool(fmt.Sprintf("shop/encode-%d", i), "0-7,16-23", "0-7,16-23"))
		}
		return of(machine(2, 1, 8, 2), "", owners...)
	},
	"a grown pool": func() *Map {
		return of(machine(1, 4, 4, 1), "", pool("shop/encode-0", "0-7", "0-3"), pool("shop/encode-1", "0-3", "0-3"))
	},
	"a contested CPU": func() *Map { return of(machine(1, 1, 4, 1), "", own("shop/db-0", "0-1"), own("shop/db-1", "1-2")) },
	"silent": func() *Map {
		n := Node{Name: "worker-1", Topology: machine(1, 1, 4, 1), Reported: reported, Made: reported.Add(2 * time.Hour), Silent: true, Manager: "the static policy of the kubelet"}
		return New(n, nil)
	},
}
