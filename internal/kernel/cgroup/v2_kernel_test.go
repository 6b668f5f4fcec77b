package cgroup

import (
	"context"
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

// TestV2ReclaimAnswers asks for page cache that is there, for memory that cannot go where
// there is no swap, and in a group that is gone. A write does not begin after the end of
// its context.
func TestV2ReclaimAnswers(t *testing.T) {
	tree, path := v2Group(t)
	dir, err := tree.Dir(memory, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/memory.reclaim"); err != nil {
		t.Skip("needs memory.reclaim (Linux 5.19)")
	}
	const mib = unit.Bytes(1 << 20)
	runIn(t, tree, path, "x=$(head -c 8388608 /dev/zero | tr '\\0' x); read more")
	awaitCount(t, "the group uses 8 MiB", func() (bool, string) {
		used, err := tree.MemoryCurrent(path)
		return err == nil && used >= 8*mib, fmt.Sprint(used, err)
	})
	if err := Reclaim(t.Context(), tree, path, 1024*mib); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("more than there is: %v, want EAGAIN", err)
	}
	if err := Reclaim(t.Context(), tree, path+"/none", mib); !errors.Is(err, ErrGone) {
		t.Errorf("in a group that is gone: %v", err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if err := Reclaim(over, tree, path, mib); !errors.Is(err, syscall.EINTR) {
		t.Errorf("after the end: %v, want EINTR", err)
	}
}

// TestV2ReclaimIsInterrupted ends a reclaim of page cache by the end of its context. On
// tmpfs, from which nothing can be reclaimed, the kernel may give up before.
func TestV2ReclaimIsInterrupted(t *testing.T) {
	tree, path := v2Group(t)
	if dir, err := tree.Dir(memory, path); err != nil {
		t.Fatal(err)
	} else if _, err := os.Stat(dir + "/memory.reclaim"); err != nil {
		t.Skip("needs memory.reclaim (Linux 5.19)")
	}
	const size = 48 << 20
	file := t.TempDir() + "/file"
	runIn(t, tree, path, fmt.Sprintf("head -c %d /dev/zero >%s; sync; while cat %[2]s >/dev/null; do sleep 0.2; done", size, file))
	awaitCount(t, "the group has the file", func() (bool, string) {
		used, err := tree.MemoryCurrent(path)
		return err == nil && used >= size, fmt.Sprint(used, err)
	})
	var fs syscall.Statfs_t
	if err := syscall.Statfs(file, &fs); err != nil {
		t.Fatal(err)
	}
	const tmpfs = 0x01021994
	for try := range 100 {
		time.Sleep(100 * time.Millisecond)
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(1+try%20)*time.Millisecond)
		before, err := Stolen(tree, path)
		if err != nil {
			t.Fatal(err)
		}
		err = Reclaim(ctx, tree, path, 1<<40)
		stop()
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
		if errors.Is(err, syscall.EINTR) || fs.Type == tmpfs && try >= 20 {
			if fs.Type == tmpfs {
				return
			}
			time.Sleep(StolenLags + time.Second)
			if after, err := Stolen(tree, path); err != nil {
				t.Fatal(err)
			} else if after > before {
				return
			}
		}
	}
	t.Error("no reclaim ended with its context")
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
