package host_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// readCached reads some bytes of a file through the page cache.
func readCached(argument string) error {
	size, file := int64(0), ""
	if _, err := fmt.Sscan(argument, &size, &file); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(io.Discard, f, size)
	return err
}

// useOf takes a snapshot without a cache. It returns the use of a group, and
// that of the node.
func useOf(t *testing.T, m *machine, p node.CgroupPath) (of, all node.Usage) {
	t.Helper()
	m.Manage(job(p))
	s, err := m.Snapshot(t.Context())
	do(t, err)
	return s.Workloads[0].Usage, s.Usage
}

func TestTheCountersOfThisKernelAreKnown(t *testing.T) {
	m := open(t, false)
	of, all := useOf(t, m, m.group(t, "counters"))
	known := map[string]bool{
		"CPU time": of.CPU.Known() && all.CPU.Known(), "memory": of.Memory.Known() && all.Memory.Known(),
		"working set": of.WorkingSet.Known() && all.WorkingSet.Known(), "refaults": of.Refaults == node.Some[int64](0) && all.Refaults.Known(),
		"periods": of.Periods == node.Some[int64](0) && of.ThrottledPeriods.Known(),
	}
	if m.tree.Has("io") {
		known["I/O"] = of.Read == node.Some(unit.Bytes(0)) && of.Written.Known() && all.Read.Known()
	}
	if _, err := os.Stat("/proc/pressure/cpu"); err == nil {
		known["pressure of the node"] = all.Pressure.CPU.Some.Known() && all.Pressure.Memory.Full.Known() && all.Pressure.IO.Some.Known()
		known["pressure of a group"] = of.Pressure.Memory.Some.Known() == (m.tree.Version() == 2)
	}
	for what, is := range known {
		if !is {
			t.Errorf("%s: %+v, and of the node %+v", what, of, all)
		}
	}
}

// TestColdCacheAndRefaultsAreCounted runs a group that reads a file once. Then
// the group reads it repeatedly, with less memory than the file needs.
func TestColdCacheAndRefaultsAreCounted(t *testing.T) {
	m := open(t, false)
	const size = 60 << 20
	file := filepath.Join(t.TempDir(), "data")
	do(t, os.WriteFile(file, make([]byte, size), 0o600))
	f, err := os.Open(file)
	do(t, err)
	defer f.Close()
	var st unix.Statfs_t
	do(t, unix.Fstatfs(int(f.Fd()), &st))
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		t.Skip("there is no file system here that has its files elsewhere than in memory")
	}
	// Drop the pages of the file from the cache. They are charged to this
	// process, and must be charged to the group.
	do(t, errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)))

	p := m.group(t, "reads")
	useOf(t, m, p) // probes the kernel first, because the probes end their thread and the tasks that it started
	pid, err := m.Start(p, 0)
	do(t, err)
	t.Cleanup(func() { do(t, m.Stop(pid)) })
	do(t, m.tell(pid, fmt.Sprintf("cache %d %s", size, file)))
	warm, _ := useOf(t, m, p)
	if cold := warm.Memory.Or(0) - warm.WorkingSet.Or(0); cold < size/2 {
		t.Errorf("60 MiB were read once: memory %v, working set %v", warm.Memory, warm.WorkingSet)
	}
	do(t, m.tree.WriteMemory(string(p), cgroup.Memory{High: unit.MaxBytes, Max: size / 2}))
	for range 3 {
		do(t, m.tell(pid, fmt.Sprintf("cache %d %s", size, file)))
	}
	tight, all := useOf(t, m, p)
	if tight.Refaults.Or(0) == 0 || all.Refaults.Or(0) < tight.Refaults.Or(0) {
		t.Errorf("60 MiB were read three times through 30 MiB: %v pages came back, on the node %v", tight.Refaults, all.Refaults)
	}
}
