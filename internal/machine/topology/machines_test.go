package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A knownMachine is a machine as the kernel shows it: the core_id, the
// physical_package_id and the siblings of each CPU. In these machines core_id
// and socket do not identify a core.
type knownMachine struct {
	cpus  int
	id    func(cpu int) (coreID, pkgID int)
	cores string // sets of siblings, separated by spaces
	numa  func(cpu int) int
}

// pairs returns the sibling lists of n cores with two consecutive CPUs each.
func pairs(n int) string {
	var all []string
	for c := range n {
		all = append(all, fmt.Sprintf("%d-%d", 2*c, 2*c+1))
	}
	return strings.Join(all, " ")
}

// singles returns the sibling lists of n cores with one CPU each.
func singles(n int) string {
	var all []string
	for c := range n {
		all = append(all, fmt.Sprint(c))
	}
	return strings.Join(all, " ")
}

var knownMachines = map[string]knownMachine{
	// Two dies of six cores in a socket. Each die counts its cores from 0.
	"AMD Opteron 6174": {
		cpus: 48, cores: singles(48),
		id:   func(c int) (int, int) { return c % 6, c / 12 },
		numa: func(c int) int { return c / 6 },
	},
	// Two dies, each with four modules of two integer cores. The kernel lists
	// the cores of a module as siblings. Each die counts its cores from 0.
	"AMD Opteron 6376": {
		cpus: 32, cores: pairs(16),
		id:   func(c int) (int, int) { return c % 8 / 2, c / 16 },
		numa: func(c int) int { return c / 8 },
	},
	// Clusters of four cores. core_id counts within the cluster.
	"SOPHON SG2042": {
		cpus: 64, cores: singles(64),
		id:   func(c int) (int, int) { return c / 4, 0 },
		numa: func(c int) int { return c / 8 % 4 },
	},
	// Books and drawers are above the sockets. core_id counts within the socket
	// of a book, and physical_package_id repeats in each book.
	"IBM z13 (s390)": {
		cpus: 16, cores: pairs(8),
		id:   func(c int) (int, int) { return c % 4 / 2, c / 4 % 2 },
		numa: func(int) int { return 0 },
	},
	// core_id is that of the chip on this architecture.
	"SPARC T4 (sparc64)": {
		cpus: 64, cores: "0-7 8-15 16-23 24-31 32-39 40-47 48-55 56-63",
		id:   func(int) (int, int) { return 1, -1 },
		numa: func(int) int { return 0 },
	},
	// physical_package_id is unique. core_id is the same for both cores of a
	// socket.
	"Itanium 9300 (ia64)": {
		cpus: 16, cores: pairs(8),
		id:   func(c int) (int, int) { return 0, c / 8 },
		numa: func(c int) int { return c / 8 },
	},
}

// tree returns the machine as the kernel shows it in its files.
func (k knownMachine) tree(t *testing.T) machine {
	t.Helper()
	m := machine{memory: map[int]int{}, noCaches: true}
	seen := map[int]bool{}
	for number, list := range strings.Fields(k.cores) {
		set, err := unit.ParseCPUSet(list)
		if err != nil {
			t.Fatal(err)
		}
		for c := range set.All() {
			cpu := int(c)
			coreID, pkgID := k.id(cpu)
			m.cpus = append(m.cpus, sysCPU{id: cpu, core: number, numa: k.numa(cpu), socket: pkgID, coreID: coreID, pkgID: pkgID})
			if n := k.numa(cpu); !seen[n] {
				seen[n] = true
				m.nodes = append(m.nodes, n)
				m.memory[n] = 16 << 20
			}
		}
	}
	if len(m.cpus) != k.cpus {
		t.Fatalf("%d CPUs written down, want %d", len(m.cpus), k.cpus)
	}
	return m
}

// TestKnownMachinesHaveTheCoresOfTheirSiblingLists uses machines for which
// core_id would give wrong cores. Tenon once had this fault.
func TestKnownMachinesHaveTheCoresOfTheirSiblingLists(t *testing.T) {
	for name, k := range knownMachines {
		t.Run(name, func(t *testing.T) {
			sys := writeSysfs(t, k.tree(t))
			got, err := New(proc.FS{Sys: sys}).Read(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range differences(got, placesIn(t, sys)) {
				t.Error(d)
			}
			var sets []string
			for _, c := range got.CPUs {
				if set := got.Siblings(c.ID); first(set) == c.ID {
					sets = append(sets, set.String())
				}
			}
			if text := strings.Join(sets, " "); text != k.cores {
				t.Errorf("cores %s\nwant  %s", text, k.cores)
			}
		})
	}
}

func first(set unit.CPUSet) unit.CPU {
	for c := range set.All() {
		return c
	}
	return -1
}

// TestKindsOfCores checks the kinds of cores, because a workload can claim CPUs
// of one kind. The kinds come from the performance-monitoring units of Intel,
// or from the capacity of each CPU.
func TestKindsOfCores(t *testing.T) {
	for name, c := range map[string]struct {
		machine machine
		want    []node.CoreKind
	}{
		"P and E cores": {
			machine{cpus: shape{sockets: 1, nodes: 1, caches: 1, cores: 4, threads: 1}.machine().cpus, pCores: "0-1", eCores: "2-3"},
			[]node.CoreKind{0, 0, 1, 1},
		},
		"big and LITTLE":              {withCapacities(446, 446, 1024, 1024), []node.CoreKind{1, 1, 0, 0}},
		"three kinds":                 {withCapacities(250, 620, 1024, 760), []node.CoreKind{2, 1, 0, 1}},
		"cores that firmware prefers": {withCapacities(1024, 1001, 960, 1024), []node.CoreKind{0, 0, 0, 0}},
	} {
		got, err := New(proc.FS{Sys: writeSysfs(t, c.machine)}).Read(time.Now())
		if err != nil {
			t.Fatal(name, err)
		}
		for i, want := range c.want {
			if got.CPUs[i].Kind != want {
				t.Errorf("%s: CPU %d is of kind %d, want %d", name, i, got.CPUs[i].Kind, want)
			}
		}
	}
}

func withCapacities(capacities ...int) machine {
	m := shape{sockets: 1, nodes: 1, caches: 1, cores: len(capacities), threads: 1}.machine()
	m.capacities = true
	for i, c := range capacities {
		m.cpus[i].capacity = c
	}
	return m
}
