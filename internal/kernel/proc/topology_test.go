package proc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/unit"
)

// TestNodesOfDifferentMemory reads a machine that has a node of CPUs without
// memory, and a node of CXL memory without CPUs.
func TestNodesOfDifferentMemory(t *testing.T) {
	got, err := fixture(t, `
-- sys/devices/system/node/node0/meminfo --
Node 0 MemTotal:       32505856 kB
Node 0 MemFree:         1048576 kB
-- sys/devices/system/node/node1/meminfo --
Node 1 MemTotal:              0 kB
-- sys/devices/system/node/node2/meminfo --
Node 2 MemTotal:      207618048 kB
`).NUMAMemory()
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]unit.Bytes{0: 31 << 30, 2: 198 << 30}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMemoryOfANodeThatIsNoNumberIsRefused(t *testing.T) {
	_, err := fixture(t, "-- sys/devices/system/node/node0/meminfo --\nNode 0 MemTotal: much kB\n").NUMAMemory()
	if err == nil || !strings.Contains(err.Error(), "node0/meminfo") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

func TestTopologyOfTwoSocketsWithSMT(t *testing.T) {
	var archive strings.Builder
	file := func(name, text string) { fmt.Fprintf(&archive, "-- sys/devices/system/%s --\n%s\n", name, text) }
	file("cpu/online", "0-3,5-7") // CPU 4 is offline
	file("node/node0/cpulist", "0-1,5")
	file("node/node1/cpulist", "2-3,6-7")
	socketCPUs := []string{"0-1,5", "2-3,6-7"}
	siblings := []string{"0", "1,5", "2,6", "3,7", "", "1,5", "2,6", "3,7"}
	for cpu, list := range siblings {
		if list == "" {
			continue
		}
		core := cpu % 4
		dir := fmt.Sprintf("cpu/cpu%d/", cpu)
		file(dir+"topology/physical_package_id", fmt.Sprint(core/2))
		file(dir+"topology/core_cpus_list", list)
		file(dir+"cache/index0/level", "1")
		file(dir+"cache/index0/shared_cpu_list", list)
		file(dir+"cache/index3/level", "3")
		file(dir+"cache/index3/shared_cpu_list", socketCPUs[core/2])
	}
	got, err := fixture(t, archive.String()).Topology()
	if err != nil {
		t.Fatal(err)
	}
	set := unit.CPUSetOf
	want := []CPU{
		{ID: 0, Socket: 0, L3: 0, NUMA: 0, Siblings: set(0)},
		{ID: 1, Socket: 0, L3: 0, NUMA: 0, Siblings: set(1, 5)},
		{ID: 2, Socket: 1, L3: 2, NUMA: 1, Siblings: set(2, 6)},
		{ID: 3, Socket: 1, L3: 2, NUMA: 1, Siblings: set(3, 7)},
		{ID: 5, Socket: 0, L3: 0, NUMA: 0, Siblings: set(1, 5)},
		{ID: 6, Socket: 1, L3: 2, NUMA: 1, Siblings: set(2, 6)},
		{ID: 7, Socket: 1, L3: 2, NUMA: 1, Siblings: set(3, 7)},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b unit.CPUSet) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestOldKernelAndHiddenCachesFallBack(t *testing.T) {
	got, err := fixture(t, `
-- sys/devices/system/cpu/online --
1
-- sys/devices/system/cpu/cpu1/topology/physical_package_id --
0
-- sys/devices/system/cpu/cpu1/topology/thread_siblings_list --
1
-- sys/devices/system/cpu/cpu1/topology/core_siblings_list --
0-1
`).Topology()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].L3 != 0 || got[0].Siblings != unit.CPUSetOf(1) || got[0].NUMA != 0 {
		t.Errorf("got %+v, want the socket in place of the L3, and node 0", got)
	}
}
