package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// A CPU is one online logical CPU and its place in the topology.
type CPU struct {
	ID unit.CPU
	// Socket is the physical_package_id. It is 0 if the kernel does not know
	// the socket: it then shows -1, or has no topology directory.
	Socket int
	// L3 identifies a level-3 cache by the lowest CPU that shares it. Many VMs
	// show no such cache. L3 is then the lowest CPU of the socket or, if the
	// sockets are not known either, of the NUMA node. If other CPUs of the socket
	// have such a cache, L3 is the lowest CPU of the socket without one.
	L3   int
	NUMA int
	// Capacity is the speed of the CPU. The fastest CPU of the machine has
	// 1024. Capacity is 0 if the kernel does not show it.
	Capacity int
	// Siblings are the online CPUs of the same core, including this CPU. The
	// kernel's core_id cannot identify a core: on some machines all cores of a
	// die have the same one, or it repeats on the second die of a socket.
	Siblings unit.CPUSet
}

// OnlineCPUs reads /sys/devices/system/cpu/online.
func (fs FS) OnlineCPUs() (unit.CPUSet, error) {
	return parsed(filepath.Join(fs.Sys, "devices/system/cpu/online"), unit.ParseCPUSet)
}

// Topology reads the online CPUs, ascending, from
// /sys/devices/system/cpu/cpuN/{topology,cache} and /sys/devices/system/node
// (Documentation/admin-guide/cputopology.rst).
func (fs FS) Topology() ([]CPU, error) {
	online, err := fs.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	nodes, err := fs.numaNodes()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(fs.Sys, "devices/system/cpu")
	inNode := map[int]unit.CPUSet{}
	for id := range online.All() {
		inNode[nodes[id]] = inNode[nodes[id]].With(id)
	}
	var cpus []CPU
	var noL3 unit.CPUSet
	for id := range online.All() {
		c, cached, err := readCPU(filepath.Join(dir, "cpu"+strconv.Itoa(int(id))), id, inNode[nodes[id]])
		if err != nil {
			return nil, err
		}
		if !cached {
			noL3 = noL3.With(id)
		}
		c.NUMA = nodes[id]
		cpus = append(cpus, c)
	}
	setApartNoL3(cpus, noL3)
	return cpus, nil
}

// setApartNoL3 corrects the L3 of CPUs without such a cache in a package where
// others have one, such as the low-power cores of Meteor Lake. Together they count
// as a cache of their own, because the others do not share theirs with them.
func setApartNoL3(cpus []CPU, noL3 unit.CPUSet) {
	cached, lowest := map[int]bool{}, map[int]int{}
	for _, c := range cpus { // ascending
		if !noL3.Has(c.ID) {
			cached[c.Socket] = true
		} else if _, known := lowest[c.Socket]; !known {
			lowest[c.Socket] = int(c.ID)
		}
	}
	for i := range cpus {
		if c := &cpus[i]; noL3.Has(c.ID) && cached[c.Socket] {
			c.L3 = lowest[c.Socket]
		}
	}
}

// readCPU reads the place of one CPU in the topology. numa contains the online
// CPUs of the same NUMA node. Guests and some boards have CPUs without a
// topology directory, so a missing file is no error. Such a CPU counts as a
// core of its own. cached says whether the kernel shows a level-3 cache.
func readCPU(dir string, id unit.CPU, numa unit.CPUSet) (c CPU, cached bool, err error) {
	c.ID = id
	socket, err := readOrAbsent(-1, filepath.Join(dir, "topology/physical_package_id"), number)
	if err != nil {
		return c, false, err
	}
	c.Socket = max(socket, 0)
	if c.Siblings, err = readFirst(dir, "topology/core_cpus_list", "topology/thread_siblings_list"); err != nil {
		return c, false, err
	}
	c.Siblings = c.Siblings.With(id)
	if c.Capacity, err = readOrAbsent(0, filepath.Join(dir, "cpu_capacity"), number); err != nil {
		return c, false, err
	}
	shared, err := sharedL3(dir)
	if err != nil {
		return c, false, err
	}
	cached = !shared.Empty()
	if shared.Empty() && socket >= 0 {
		if shared, err = readFirst(dir, "topology/package_cpus_list", "topology/core_siblings_list"); err != nil {
			return c, false, err
		}
	}
	if shared.Empty() {
		shared = numa
	}
	c.L3 = int(first(shared, id))
	return c, cached, nil
}

// readFirst reads the list of CPUs in the file name, or else in the file
// oldName, which is its name before Linux 5.3. The list is empty if the kernel
// has neither file.
func readFirst(dir, name, oldName string) (unit.CPUSet, error) {
	set, err := parsed(filepath.Join(dir, name), unit.ParseCPUSet)
	if errors.Is(err, os.ErrNotExist) {
		return readOrAbsent(unit.CPUSet{}, filepath.Join(dir, oldName), unit.ParseCPUSet)
	}
	return set, err
}

// readOrAbsent reads a file that not every kernel has. If the file is missing,
// it returns the argument absent.
func readOrAbsent[T any](absent T, path string, parse func(string) (T, error)) (T, error) {
	v, err := parsed(path, parse)
	if errors.Is(err, os.ErrNotExist) {
		return absent, nil
	}
	return v, err
}

// IsolatedCPUs returns the CPUs that the kernel's command line excludes from
// the scheduler's load balancing (isolcpus=) or from the periodic timer tick
// (nohz_full=). It reads /sys/devices/system/cpu/isolated and nohz_full
// (Documentation/admin-guide/kernel-parameters.txt). If one of the files is
// damaged, it returns the CPUs in the other one, and an error.
func (fs FS) IsolatedCPUs() (unit.CPUSet, error) {
	var all unit.CPUSet
	var errs []error
	for _, name := range []string{"isolated", "nohz_full"} {
		set, err := readOrAbsent(unit.CPUSet{}, filepath.Join(fs.Sys, "devices/system/cpu", name), parseIsolated)
		errs = append(errs, err)
		all = all.Union(set)
	}
	return all, errors.Join(errs...)
}

// parseIsolated parses a list of isolated CPUs. A kernel that supports
// nohz_full, but was started without it, shows "(null)" instead of a list, or
// nothing but a zero byte (3.10 of CentOS 7).
func parseIsolated(text string) (unit.CPUSet, error) {
	text = strings.Trim(text, "\x00 \t\n")
	if text == "(null)" {
		return unit.CPUSet{}, nil
	}
	return unit.ParseCPUSet(text)
}

// CoreKinds returns the CPUs of each kind of core of a hybrid Intel processor,
// the fastest kind first. The processor has one performance-monitoring unit for
// each kind (/sys/devices/cpu_core, cpu_atom and cpu_lowpower), whose file cpus
// is read. For other processors CoreKinds returns nothing.
func (fs FS) CoreKinds() ([]unit.CPUSet, error) {
	var kinds []unit.CPUSet
	for _, pmu := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		set, err := readOrAbsent(unit.CPUSet{}, filepath.Join(fs.Sys, "devices", pmu, "cpus"), unit.ParseCPUSet)
		if err != nil { // without all kinds, the others say nothing
			return nil, err
		}
		if !set.Empty() {
			kinds = append(kinds, set)
		}
	}
	return kinds, nil
}

// sharedL3 returns the CPUs that share the level-3 cache. The set is empty if
// there is no such cache.
func sharedL3(dir string) (unit.CPUSet, error) {
	levels, err := filepath.Glob(filepath.Join(dir, "cache/index[0-9]*/level"))
	if err != nil {
		return unit.CPUSet{}, err
	}
	for _, file := range levels {
		level, err := parsed(file, number)
		if err != nil {
			return unit.CPUSet{}, err
		}
		if level == 3 {
			return parsed(filepath.Join(filepath.Dir(file), "shared_cpu_list"), unit.ParseCPUSet)
		}
	}
	return unit.CPUSet{}, nil
}

func first(set unit.CPUSet, fallback unit.CPU) unit.CPU {
	for c := range set.All() {
		return c
	}
	return fallback
}

// NUMAMemory reads the memory of each NUMA node from
// /sys/devices/system/node/nodeN/meminfo. It omits nodes without memory. A node
// of persistent or CXL memory has no CPUs. The map is empty on kernels without
// NUMA, where all memory is on node 0. If some files are damaged, it returns the
// memory of all other nodes, and an error.
func (fs FS) NUMAMemory() (map[int]unit.Bytes, error) {
	files, err := filepath.Glob(filepath.Join(fs.Sys, "devices/system/node/node[0-9]*/meminfo"))
	if err != nil {
		return nil, err
	}
	sizes := map[int]unit.Bytes{}
	var errs []error
	for _, file := range files {
		n, err := numaNode(file)
		if err != nil {
			return nil, err
		}
		prefix := fmt.Sprintf("Node %d ", n)
		m, err := parsed(file, func(text string) (MemInfo, error) {
			m := parseMemInfoOf(prefix, text)
			return m, m.Unread["MemTotal"]
		})
		if err != nil {
			errs = append(errs, err)
		}
		if m.Total > 0 {
			sizes[n] = m.Total
		}
	}
	return sizes, errors.Join(errs...)
}

// numaNode returns the number of the NUMA node whose directory contains the
// file.
func numaNode(file string) (int, error) {
	name := filepath.Base(filepath.Dir(file))
	n, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
	if err != nil {
		return 0, fmt.Errorf("numa node %q: want a number after node", name)
	}
	return n, nil
}

// numaNodes returns the NUMA node of each CPU. The map is empty on kernels
// without NUMA, where every CPU is on node 0.
func (fs FS) numaNodes() (map[unit.CPU]int, error) {
	lists, err := filepath.Glob(filepath.Join(fs.Sys, "devices/system/node/node[0-9]*/cpulist"))
	if err != nil {
		return nil, err
	}
	nodes := map[unit.CPU]int{}
	for _, file := range lists {
		n, err := numaNode(file)
		if err != nil {
			return nil, err
		}
		cpus, err := parsed(file, unit.ParseCPUSet)
		if err != nil {
			return nil, err
		}
		for c := range cpus.All() {
			nodes[c] = n
		}
	}
	return nodes, nil
}
