package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// A machine describes a machine as the kernel shows it below /sys. writeSysfs
// makes the files from it.
type machine struct {
	cpus []sysCPU
	// memory is the size of each NUMA node in kB. The key is the number of the
	// node. A node without an entry has no memory.
	memory map[int]int
	nodes  []int // the NUMA nodes that exist, also those without CPUs

	oldNames   bool // thread_siblings_list and core_siblings_list, as before Linux 5.3
	noCaches   bool // no cache directory, as in many guests
	isolated   string
	pCores     string // cpus of the unit cpu_core; empty: not hybrid
	eCores     string
	capacities bool // cpu_capacity of each CPU, as on Arm
}

// A sysCPU is a CPU of a machine. If two CPUs have the same number for a part,
// such as the core, they share this part.
type sysCPU struct {
	id                     int
	core, l3, numa, socket int // unique numbers of the machine
	coreID                 int // core_id, which need not be unique
	pkgID                  int // physical_package_id
	capacity               int
	offline                bool
	bare                   bool // without the directories topology and cache
}

// sharing returns which online CPUs share a part of the machine, such as a
// core. The key is the number of the part.
func (m machine) sharing(number func(sysCPU) int) map[int]unit.CPUSet {
	sets := map[int]unit.CPUSet{}
	for _, c := range m.cpus {
		if !c.offline && !c.bare {
			sets[number(c)] = sets[number(c)].With(unit.CPU(c.id))
		}
	}
	return sets
}

func core(c sysCPU) int   { return c.core }
func l3(c sysCPU) int     { return c.l3 }
func socket(c sysCPU) int { return c.socket }

// mask prints a set as the kernel prints bitmaps
// (Documentation/core-api/printk-formats.rst). These are groups of 32 bits in
// hexadecimal, the highest group first.
func mask(set unit.CPUSet, bits int) string {
	words := make([]uint32, (bits+31)/32)
	for c := range set.All() {
		words[c/32] |= 1 << (c % 32)
	}
	var groups []string
	for i := len(words) - 1; i >= 0; i-- {
		groups = append(groups, fmt.Sprintf("%08x", words[i]))
	}
	return strings.Join(groups, ",")
}

// writeSysfs writes the files of a machine, and returns the directory that
// stands for /sys.
func writeSysfs(t *testing.T, m machine) string {
	t.Helper()
	sys := tmpfsDir(t)
	made := map[string]bool{}
	file := func(text string, path ...string) {
		t.Helper()
		name := filepath.Join(append([]string{sys}, path...)...)
		if dir := filepath.Dir(name); !made[dir] {
			made[dir] = true
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bits := 0
	var online unit.CPUSet
	for _, c := range m.cpus {
		bits = max(bits, c.id+1)
		if !c.offline {
			online = online.With(unit.CPU(c.id))
		}
	}
	cpus := "devices/system/cpu"
	file(online.String(), cpus, "online")
	file(m.isolated, cpus, "isolated")
	file("(null)", cpus, "nohz_full")
	if m.pCores != "" {
		file(m.pCores, "devices/cpu_core/cpus")
		file(m.eCores, "devices/cpu_atom/cpus")
	}
	siblings, packages := [2]string{"core_cpus_list", "core_cpus"}, [2]string{"package_cpus_list", "package_cpus"}
	if m.oldNames {
		siblings, packages = [2]string{"thread_siblings_list", "thread_siblings"}, [2]string{"core_siblings_list", "core_siblings"}
	}
	cores, caches, sockets := m.sharing(core), m.sharing(l3), m.sharing(socket)
	for _, c := range m.cpus {
		if c.offline { // the kernel removes both directories
			continue
		}
		dir := filepath.Join(cpus, fmt.Sprintf("cpu%d", c.id))
		if len(m.nodes) > 0 {
			file("", dir, fmt.Sprintf("node%d", c.numa), "present") // a link in sysfs
		}
		file("1", dir, "online")
		if m.capacities {
			file(fmt.Sprint(c.capacity), dir, "cpu_capacity")
		}
		if c.bare {
			continue
		}
		file(fmt.Sprint(c.coreID), dir, "topology/core_id")
		file(fmt.Sprint(c.pkgID), dir, "topology/physical_package_id")
		shared := cores[c.core]
		file(shared.String(), dir, "topology", siblings[0])
		file(mask(shared, bits), dir, "topology", siblings[1])
		if shared = sockets[c.socket]; c.pkgID < 0 {
			shared = unit.CPUSetOf(unit.CPU(c.id)) // the default of include/linux/topology.h
		}
		file(shared.String(), dir, "topology", packages[0])
		file(mask(shared, bits), dir, "topology", packages[1])
		if m.noCaches {
			continue
		}
		for index, level := range []struct {
			number int
			shared unit.CPUSet
		}{{1, cores[c.core]}, {2, cores[c.core]}, {3, caches[c.l3]}} {
			cache := fmt.Sprintf("cache/index%d", index)
			file(fmt.Sprint(level.number), dir, cache, "level")
			file(level.shared.String(), dir, cache, "shared_cpu_list")
			file(mask(level.shared, bits), dir, cache, "shared_cpu_map")
		}
	}
	for _, n := range m.nodes {
		var on unit.CPUSet
		for _, c := range m.cpus {
			if c.numa == n && !c.offline {
				on = on.With(unit.CPU(c.id))
			}
		}
		dir := fmt.Sprintf("devices/system/node/node%d", n)
		file(on.String(), dir, "cpulist")
		file(fmt.Sprintf("Node %d MemTotal: %d kB\nNode %d MemFree: %d kB", n, m.memory[n], n, m.memory[n]/2), dir, "meminfo")
	}
	return sys
}

// tmpfsDir returns an empty directory, on tmpfs if there is one, because a tree
// has thousands of files.
func tmpfsDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tenon-sysfs-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
