package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// The tests of this file run against the running kernel, on cgroup v1 or v2.
// They need permission to make groups below the root.

var groupsMade atomic.Int64

// kernelGroup makes a group for the test. When the test ends, it removes the
// group and all groups below it.
func kernelGroup(t *testing.T) (*Tree, string) {
	t.Helper()
	tree, err := Detect("/proc")
	if err != nil {
		skip(t, err)
	}
	path := fmt.Sprintf("tenon-test-%d-%d", os.Getpid(), groupsMade.Add(1))
	err = tree.Make(path)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.RemoveAll(path); err != nil {
			t.Error(err)
		}
		if tree.Exists(path) {
			t.Errorf("group %s is left behind", path)
		}
	})
	return tree, path
}

func skip(t *testing.T, why error) {
	t.Helper()
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatalf("TENON_TEST_STRICT is set, and the kernel cannot be tested: %v", why)
	}
	t.Skipf("needs to make cgroups: %v", why)
}

// start starts a process that is killed when the test ends.
func start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start %s: %v", name, err)
	}
	t.Cleanup(func() { stop(cmd) })
	return cmd
}

func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestProcessesCanEnterANewGroupAtOnce(t *testing.T) {
	tree, path := kernelGroup(t)
	leaf := path + "/a/b"
	if err := tree.Make(leaf); err != nil {
		t.Fatal(err)
	}
	pid := start(t, "sleep", "60").Process.Pid
	if err := tree.Attach(leaf, pid); err != nil {
		t.Fatal(err)
	}
	if ids, err := tree.Procs(leaf); err != nil || !slices.Equal(ids, []int{pid}) {
		t.Errorf("processes %v, %v, want %d", ids, err, pid)
	}
	if names, err := tree.Children(path); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("children %v, %v, want a", names, err)
	}
	if tree.Has(pids) {
		if n, err := tree.PIDsCurrent(path); err != nil || n != 1 {
			t.Errorf("tasks below %s: %d, %v, want 1", path, n, err)
		}
	}
	if cpus, err := tree.EffectiveCPUs(leaf); err != nil || cpus.Empty() {
		t.Errorf("effective CPUs %q, %v", cpus, err)
	}
	if err := tree.Attach(leaf, 1<<30); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("Attach of a missing process: got %v, want ESRCH", err)
	}
}

func TestRemovalWaitsForTasksThatAreEnding(t *testing.T) {
	tree, path := kernelGroup(t)
	cmd := start(t, "sleep", "60")
	if err := tree.Attach(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { stop(cmd) })
	began := time.Now()
	if err := tree.Remove(path); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d < 50*time.Millisecond {
		t.Errorf("the group was removed after %v although a process lives in it", d)
	}
}

func TestGroupWithChildrenIsRefusedAtOnce(t *testing.T) {
	tree, path := kernelGroup(t)
	if err := tree.Make(path + "/a"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := tree.Remove(path); !errors.Is(err, syscall.EBUSY) || time.Since(began) > time.Second {
		t.Errorf("got %v after %v, want EBUSY at once", err, time.Since(began))
	}
}

func TestRemadeGroupHasAnotherInode(t *testing.T) {
	tree, path := kernelGroup(t)
	first, err1 := tree.Inode(path)
	err2 := tree.Remove(path)
	err3 := tree.Make(path)
	second, err4 := tree.Inode(path)
	if err := errors.Join(err1, err2, err3, err4); err != nil || first == second {
		t.Errorf("inodes %d and %d, %v", first, second, err)
	}
}

func TestWeightIsLostUnderIdleAndWrittenAgain(t *testing.T) {
	tree, path := kernelGroup(t)
	weights := []CPUWeight{{Weight: unit.WeightOf(39)}, {Weight: unit.WeightOf(1)}, {Weight: unit.WeightOf(10000)}}
	if tree.Version() == 1 {
		weights = []CPUWeight{{Weight: unit.WeightOfShares(333)}, {Weight: unit.WeightOfShares(2)}, {Weight: unit.WeightOfShares(262144)}}
	}
	for _, w := range weights {
		for _, v := range []CPUWeight{w, {Idle: true}, {Idle: true}, w, w} {
			if err := tree.WriteCPUWeight(path, v); errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			if got, err := tree.ReadCPUWeight(path); err != nil || got != v {
				t.Errorf("got %+v, %v, want %+v", got, err, v)
			}
		}
	}
	file := map[int]string{1: "cpu.shares", 2: "cpu.weight"}[tree.Version()]
	if err := tree.WriteCPUWeight(path, CPUWeight{Idle: true}); err != nil {
		t.Fatal(err)
	}
	if err := tree.write(cpu, path, file, "100"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("weight of an idle group: got %v, want EINVAL", err)
	}
}

// TestEveryLimitCanFollowEveryOther changes from each limit to each other
// limit. Every change must succeed, even if the limits of parent and child
// leave no room for the values in between.
func TestEveryLimitCanFollowEveryOther(t *testing.T) {
	tree, path := kernelGroup(t)
	middle, leaf := path+"/m", path+"/m/leaf"
	if err := tree.Make(leaf); err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	hasBurst := tree.WriteCPUMax(leaf, CPUMax{Quota: 10 * ms, Period: 100 * ms, Burst: ms}) == nil
	// The limits range from 1/2 CPU to 2 CPUs.
	limits := []CPUMax{
		{Quota: 200 * ms, Period: 100 * ms}, {Quota: 50 * ms, Period: 100 * ms}, {Quota: 100 * ms, Period: 100 * ms},
		{Quota: 2000 * ms, Period: 1000 * ms}, {Quota: 500 * ms, Period: 1000 * ms},
		{Quota: 2 * ms, Period: ms}, {Quota: 1 * ms, Period: 2 * ms}, {Quota: 15 * ms, Period: 10 * ms},
		{Quota: NoQuota, Period: 100 * ms}, {Quota: NoQuota, Period: 10 * ms}, {Quota: NoQuota, Period: ms},
	}
	if hasBurst {
		limits = append(limits, CPUMax{100 * ms, 100 * ms, 100 * ms}, CPUMax{50 * ms, 100 * ms, 20 * ms},
			CPUMax{20 * ms, 10 * ms, 15 * ms}, CPUMax{NoQuota, 100 * ms, 70 * ms}, CPUMax{NoQuota, 5 * ms, 300 * ms})
	}
	for name, bounds := range map[string]struct{ parent, child CPUMax }{
		"free":                   {CPUMax{Quota: NoQuota, Period: 100 * ms}, CPUMax{Quota: NoQuota, Period: 100 * ms}},
		"tight parent":           {CPUMax{Quota: 200 * ms, Period: 100 * ms}, CPUMax{Quota: NoQuota, Period: 100 * ms}},
		"wide child":             {CPUMax{Quota: NoQuota, Period: 100 * ms}, CPUMax{Quota: 50 * ms, Period: 100 * ms}},
		"tight parent and child": {CPUMax{Quota: 200 * ms, Period: 100 * ms}, CPUMax{Quota: 50 * ms, Period: 100 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			reset := CPUMax{Quota: NoQuota, Period: 100 * ms}
			for _, p := range []string{leaf, middle, path} {
				if err := tree.WriteCPUMax(p, reset); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(tree.WriteCPUMax(path, bounds.parent), tree.WriteCPUMax(leaf, bounds.child)); err != nil {
				t.Fatal(err)
			}
			for _, from := range limits {
				for _, to := range limits {
					if err := errors.Join(tree.WriteCPUMax(middle, from), tree.WriteCPUMax(middle, to)); err != nil {
						t.Fatalf("from %+v to %+v: %v", from, to, err)
					}
					if got, err := tree.ReadCPUMax(middle); err != nil || got != to {
						t.Fatalf("from %+v to %+v: got %+v, %v", from, to, got, err)
					}
				}
			}
		})
	}
}

func TestRefusedLimitLeavesTheOldOne(t *testing.T) {
	tree, path := kernelGroup(t)
	const ms = time.Millisecond
	for _, old := range []CPUMax{{50 * ms, 100 * ms, 0}, {30 * ms, 60 * ms, 20 * ms}, {NoQuota, 50 * ms, 0}} {
		if err := tree.WriteCPUMax(path, old); errors.Is(err, ErrUnsupported) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for name, bad := range map[string]CPUMax{
			"period above 1 s":  {100 * ms, 1001 * ms, 0},
			"period below 1 ms": {100 * ms, ms / 2, 0},
			"quota below 1 ms":  {ms / 2, 80 * ms, 0},
			"burst above quota": {10 * ms, 80 * ms, 25 * ms},
		} {
			if err := tree.WriteCPUMax(path, bad); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s: got %v, want EINVAL", name, err)
			}
			if got, err := tree.ReadCPUMax(path); err != nil || got != old {
				t.Errorf("%s: left %+v, %v, want %+v", name, got, err, old)
			}
		}
	}
}

func TestThrottlingAndUsageAreCounted(t *testing.T) {
	tree, path := kernelGroup(t)
	limit := CPUMax{Quota: 2 * time.Millisecond, Period: 20 * time.Millisecond}
	if err := tree.WriteCPUMax(path, limit); err != nil {
		t.Fatal(err)
	}
	cmd := start(t, "sh", "-c", "while :; do :; done")
	if err := tree.Attach(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		s, err := tree.CPUStat(path)
		if err != nil {
			t.Fatal(err)
		}
		if s.NrThrottled > 0 && s.Throttled > 0 && s.Periods >= s.NrThrottled && s.Usage > 0 && s.User > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 5 s of spinning at a tenth of a CPU: %+v", s)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestCPUsAndMemoryNodesAreReadBack(t *testing.T) {
	tree, path := kernelGroup(t)
	if err := tree.Make(path + "/a"); err != nil {
		t.Fatal(err)
	}
	all, err := tree.EffectiveCPUs(path)
	if errors.Is(err, ErrUnsupported) {
		skip(t, err)
	}
	for c := range all.All() {
		want := unit.CPUSetOf(c)
		if err := tree.WriteCPUs(path+"/a", want); err != nil {
			t.Fatal(err)
		}
		got, err1 := tree.ReadCPUs(path + "/a")
		effective, err2 := tree.EffectiveCPUs(path + "/a")
		if err := errors.Join(err1, err2); err != nil || got != want || effective != want {
			t.Errorf("got %q, effective %q, %v, want %q", got, effective, err, want)
		}
	}
	if err := tree.WriteCPUs(path+"/a", unit.CPUSetOf(unit.MaxCPUs-1)); err == nil {
		t.Errorf("CPU %d was accepted", unit.MaxCPUs-1)
	}
	node := unit.CPUSetOf(0)
	if err := tree.WriteMems(path+"/a", node); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.ReadMems(path + "/a"); err != nil || got != node {
		t.Errorf("memory nodes %q, %v, want %q", got, err, node)
	}
}

func TestMemoryLimitIsRoundedDownToPages(t *testing.T) {
	tree, path := kernelGroup(t)
	page := unit.Bytes(os.Getpagesize())
	fresh, err := tree.ReadMemory(path)
	if errors.Is(err, ErrUnsupported) {
		skip(t, err)
	}
	if err != nil || fresh != noMemoryLimit {
		t.Fatalf("fresh group: %+v, %v, want no limit", fresh, err)
	}
	want := Memory{High: unit.MaxBytes, Max: 1000 * page}
	for _, v := range []Memory{{High: unit.MaxBytes, Max: 1000*page + 1}, noMemoryLimit, {High: unit.MaxBytes, Max: 1001*page - 1}} {
		if err := tree.WriteMemory(path, v); err != nil {
			t.Fatal(err)
		}
		expect := want
		if v == noMemoryLimit {
			expect = noMemoryLimit
		}
		if got, err := tree.ReadMemory(path); err != nil || got != expect {
			t.Errorf("got %+v, %v, want %+v", got, err, expect)
		}
	}
	_, err1 := tree.MemoryCurrent(path)
	_, err2 := tree.MemoryStat(path)
	_, err3 := tree.MemoryEvents(path)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Error(err)
	}
}

func TestTaskLimitHasAMaximum(t *testing.T) {
	tree, path := kernelGroup(t)
	if !tree.Has(pids) {
		skip(t, ErrUnsupported)
	}
	for _, v := range []Maximum{{7}, {0}, {4194304}, {NoMaximum}} {
		if err := tree.WriteLimit(path, "pids.max", v); err != nil {
			t.Fatal(err)
		}
		if got, err := tree.ReadLimit(path, "pids.max"); err != nil || got != v {
			t.Errorf("got %+v, %v, want %+v", got, err, v)
		}
	}
	if err := tree.WriteLimit(path, "pids.max", Maximum{4194305}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("more than PID_MAX_LIMIT: got %v, want EINVAL", err)
	}
}

func TestRemovedGroupIsGoneOnTheKernel(t *testing.T) {
	tree, path := kernelGroup(t)
	if err := tree.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := tree.CPUStat(path)
	if !errors.Is(err, ErrGone) || !errors.Is(tree.WriteCPUWeight(path, CPUWeight{Weight: 256}), ErrGone) || tree.Exists(path) {
		t.Errorf("got %v, want ErrGone", err)
	}
	if _, err := tree.ReadLimit("", "pids.max"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("pids.max of the root: got %v, want ErrUnsupported", err)
	}
}
