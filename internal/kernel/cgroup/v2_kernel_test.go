package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// v2Group does the same as kernelGroup. It skips the test unless all
// controllers are on v2.
func v2Group(t *testing.T) (*Tree, string) {
	t.Helper()
	tree, path := kernelGroup(t)
	for _, c := range controllers {
		if c != freezer && tree.VersionOf(c) != 2 {
			t.Skipf("controller %s is on cgroup v%d here", c, tree.VersionOf(c))
		}
	}
	return tree, path
}

func TestV2AcceptsWhatV1Refuses(t *testing.T) {
	tree, path := v2Group(t)
	child := path + "/a"
	if err := tree.Make(child); err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	narrow, wide := CPUMax{Quota: 10 * ms, Period: 100 * ms}, CPUMax{Quota: 90 * ms, Period: 100 * ms}
	if err := errors.Join(tree.WriteCPUMax(path, narrow), tree.WriteCPUMax(child, wide)); err != nil {
		t.Errorf("child above its parent: %v", err)
	}
	if cpus, err := tree.ReadCPUs(child); err != nil || !cpus.Empty() {
		t.Errorf("CPUs of a new group: %q, %v, want none of its own", cpus, err)
	}
	all, err := tree.EffectiveCPUs(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tree.WriteCPUs(path, unit.CPUSetOf(0)), tree.WriteCPUs(child, all)); err != nil {
		t.Errorf("CPUs beyond the parent's: %v", err)
	}
	effective, err := tree.EffectiveCPUs(child)
	if err != nil || effective != unit.CPUSetOf(0) {
		t.Errorf("effective CPUs %q, %v, want 0", effective, err)
	}
}

func TestV2MemoryProtectionIsReadBack(t *testing.T) {
	tree, path := v2Group(t)
	const mib = unit.Bytes(1 << 20)
	for _, v := range []Memory{
		{Min: mib, Low: 2 * mib, High: 30 * mib, Max: 40 * mib},
		{Min: 0, Low: mib, High: 50 * mib, Max: unit.MaxBytes},
		noMemoryLimit,
	} {
		if err := tree.WriteMemory(path, v); err != nil {
			t.Fatal(err)
		}
		if got, err := tree.ReadMemory(path); err != nil || got != v {
			t.Errorf("got %+v, %v, want %+v", got, err, v)
		}
	}
}

// TestV2UnusedProtectionGoesToOtherMemoryBelow compares RecursiveProtection with
// what the kernel does. A service uses less than the memory.low of its parent,
// and batch work below the same parent has none of its own. The kernel counts an
// event "low" if it reclaims a group all of whose memory is protected.
func TestV2UnusedProtectionGoesToOtherMemoryBelow(t *testing.T) {
	tree, path := v2Group(t)
	parent, service, batch := path+"/parent", path+"/parent/service", path+"/parent/batch"
	if err := errors.Join(tree.Make(service), tree.Make(batch)); err != nil {
		t.Fatal(err)
	}
	dir, err := tree.Dir(memory, path)
	if err != nil {
		t.Fatal(err)
	}
	reclaim := dir + "/memory.reclaim"
	if _, err := os.Stat(reclaim); err != nil {
		t.Skip("needs memory.reclaim (Linux 5.19)")
	}
	const mib = unit.Bytes(1 << 20)
	runIn(t, tree, batch, "x=$(head -c 8388608 /dev/zero | tr '\\0' x); read more")
	awaitCount(t, "batch work uses 8 MiB", func() (bool, string) {
		used, err := tree.MemoryCurrent(batch)
		return err == nil && used >= 8*mib, fmt.Sprint(used, err)
	})
	events := func(low unit.Bytes) int {
		v := noMemoryLimit
		v.Low = 1024 * mib
		err := tree.WriteMemory(service, v)
		v.Low = low
		if err := errors.Join(err, tree.WriteMemory(parent, v)); err != nil {
			t.Fatal(err)
		}
		// The kernel answers EAGAIN if it can reclaim less. It may, because anonymous
		// memory stays where there is no swap. Package os would wait for the file.
		if err := writePath(reclaim, "4M"); err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
		text, err := os.ReadFile(dir + "/parent/batch/memory.events")
		if err != nil {
			t.Fatal(err)
		}
		n := -1
		for line := range strings.Lines(string(text)) {
			_, _ = fmt.Sscanf(line, "low %d", &n)
		}
		return n
	}
	followed := events(mib)
	whole := events(1024 * mib)
	if followed != 0 || whole > 0 != tree.RecursiveProtection {
		t.Errorf("%d events low if the parent has what the service needs, and %d if it has the whole setting of the service: want none, and some if RecursiveProtection, which is %t",
			followed, whole, tree.RecursiveProtection)
	}
}

func TestV2GroupsHavePressureAndPartitions(t *testing.T) {
	tree, path := v2Group(t)
	for _, resource := range []string{"cpu", "memory", "io"} {
		if _, err := tree.Pressure(path, resource); err != nil {
			t.Error(err)
		}
	}
	if p, err := tree.Partition(path); err != nil || p != "member" {
		t.Errorf("partition %q, %v, want member", p, err)
	}
}
