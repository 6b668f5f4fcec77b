package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sysfs writes the files of a topology: the siblings and the core_id of each
// CPU, and the memory of each NUMA node in kB. All CPUs are in one socket.
func sysfs(t *testing.T, siblings []string, coreIDs []int, memory ...int) proc.FS {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, "devices/system", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := fmt.Sprintf("0-%d", len(siblings)-1)
	write("cpu/online", all)
	for c, list := range siblings {
		topology := fmt.Sprintf("cpu/cpu%d/topology/", c)
		write(topology+"core_id", fmt.Sprint(coreIDs[c]))
		write(topology+"physical_package_id", "0")
		write(topology+"core_cpus_list", list)
		write(topology+"package_cpus_list", all)
	}
	for n, kB := range memory {
		write(fmt.Sprintf("node/node%d/cpulist", n), "")
		write(fmt.Sprintf("node/node%d/meminfo", n), fmt.Sprintf("Node %d MemTotal: %d kB", n, kB))
	}
	return proc.FS{Sys: dir}
}

// TestCoresAreWhatTheKernelListsAsSiblings checks that core_id does not decide
// which CPUs form a core. On AMD Opteron, it repeats within a socket that has
// two dies. On some boards (SG2042), it is the same for all cores of a cluster.
func TestCoresAreWhatTheKernelListsAsSiblings(t *testing.T) {
	for name, c := range map[string]struct {
		siblings []string
		coreIDs  []int
		want     []node.CoreID
	}{
		"two dies in a socket":        {strings.Fields("0-1 0-1 2-3 2-3"), []int{0, 0, 0, 0}, []node.CoreID{0, 0, 1, 1}},
		"a number for a cluster":      {strings.Fields("0 1 2 3"), []int{7, 7, 7, 7}, []node.CoreID{0, 1, 2, 3}},
		"siblings half of all apart":  {strings.Fields("0,2 1,3 0,2 1,3"), []int{0, 1, 0, 1}, []node.CoreID{0, 1, 0, 1}},
		"a CPU that its list forgets": {strings.Fields("0-1 0-1 0-1 3"), []int{0, 0, 1, 1}, []node.CoreID{0, 0, 1, 2}},
	} {
		got, err := New(sysfs(t, c.siblings, c.coreIDs)).Read(time.Now())
		if err != nil {
			t.Fatal(name, err)
		}
		for i, want := range c.want {
			if got.CPUs[i].Core != want {
				t.Errorf("%s: CPU %d is of core %d, want %d", name, i, got.CPUs[i].Core, want)
			}
		}
	}
}

func TestMemoryThatIsAddedIsSeen(t *testing.T) {
	fs := sysfs(t, []string{"0"}, []int{0}, 1024, 0)
	c := New(fs)
	now := time.Now()
	is := func(after time.Duration, zero, one unit.Bytes) {
		t.Helper()
		got, err := c.Read(now.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		want := []node.NUMAMemory{{NUMA: 0, Size: zero}}
		if one > 0 {
			want = append(want, node.NUMAMemory{NUMA: 1, Size: one})
		}
		if !slices.Equal(got.Memory, want) {
			t.Errorf("after %v: %v, want %v", after, got.Memory, want)
		}
	}
	is(0, 1<<20, 0)
	file := filepath.Join(fs.Sys, "devices/system/node/node1/meminfo")
	if err := os.WriteFile(file, []byte("Node 1 MemTotal: 2048 kB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	is(sizedFor/2, 1<<20, 0)
	is(sizedFor, 1<<20, 2<<20)
}
