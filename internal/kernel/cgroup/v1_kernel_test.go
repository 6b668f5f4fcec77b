package cgroup

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// v1Group does the same as kernelGroup. It skips the test if the controller is
// not on v1.
func v1Group(t *testing.T, controller string) (*Tree, string) {
	t.Helper()
	tree, path := kernelGroup(t)
	if tree.VersionOf(controller) != 1 {
		t.Skipf("controller %s is on cgroup v%d here", controller, tree.VersionOf(controller))
	}
	return tree, path
}

func TestV1ChildMayNotExceedItsParent(t *testing.T) {
	tree, path := v1Group(t, cpu)
	child := path + "/a"
	if err := tree.Make(child); err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	half, one := CPUMax{Quota: 50 * ms, Period: 100 * ms}, CPUMax{Quota: 80 * ms, Period: 80 * ms}
	if err := tree.WriteCPUMax(path, half); err != nil {
		t.Fatal(err)
	}
	if err := tree.WriteCPUMax(child, one); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("child above parent: got %v, want EINVAL", err)
	}
	if got, err := tree.ReadCPUMax(child); err != nil || got != (CPUMax{Quota: NoQuota, Period: 100 * ms}) {
		t.Errorf("after the refusal the value is %+v, %v", got, err)
	}
	if err := errors.Join(tree.WriteCPUMax(path, one), tree.WriteCPUMax(child, one)); err != nil {
		t.Fatal(err)
	}
	if err := tree.WriteCPUMax(path, half); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("parent below child: got %v, want EINVAL", err)
	}
	if got, err := tree.ReadCPUMax(path); err != nil || got != one {
		t.Errorf("after the refusal the value is %+v, %v, want %+v", got, err, one)
	}
}

func TestV1CPUSetStaysWithinItsParent(t *testing.T) {
	tree, path := v1Group(t, cpuset)
	child := path + "/a"
	if err := tree.Make(child); err != nil {
		t.Fatal(err)
	}
	all, err := tree.ReadCPUs(path)
	if err != nil || all.Len() < 2 {
		t.Skipf("needs 2 CPUs: %q, %v", all, err)
	}
	one := unit.CPUSet{}
	for c := range all.All() {
		one = unit.CPUSetOf(c)
		break
	}
	if err := tree.WriteCPUs(path, one); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("parent without the CPUs of its child: got %v, want EBUSY", err)
	}
	if err := errors.Join(tree.WriteCPUs(child, one), tree.WriteCPUs(path, one)); err != nil {
		t.Fatal(err)
	}
	if err := tree.WriteCPUs(child, all); !errors.Is(err, syscall.EACCES) {
		t.Errorf("child beyond its parent: got %v, want EACCES", err)
	}
}

func TestV1EmptyCPUSetTakesNoTask(t *testing.T) {
	tree, path := v1Group(t, cpuset)
	if err := tree.WriteCPUs(path, unit.CPUSet{}); err != nil {
		t.Fatal(err)
	}
	pid := start(t, "sleep", "60").Process.Pid
	err := tree.Attach(path, pid)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "cpuset.cpus or cpuset.mems") {
		t.Errorf("got %v, want ENOSPC with its reason", err)
	}
	if ids, err := tree.Procs(path); err != nil || len(ids) != 0 {
		t.Errorf("the process has moved in another hierarchy: %v, %v", ids, err)
	}
	if err := tree.WriteCPUs(path, unit.CPUSetOf(0)); err != nil {
		t.Fatal(err)
	}
	if err := tree.Attach(path, pid); err != nil {
		t.Fatal(err)
	}
	if err := tree.WriteCPUs(path, unit.CPUSet{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("taking the last CPU of a task: got %v, want ENOSPC", err)
	}
	if err := tree.Attach("", pid); err != nil {
		t.Error(err)
	}
}

func TestV1SingleThreadsMove(t *testing.T) {
	tree, path := v1Group(t, cpu)
	pid := start(t, "sleep", "60").Process.Pid
	if err := tree.AttachThread(path, pid); err != nil {
		t.Fatal(err)
	}
	if ids, err := tree.Procs(path); err != nil || !slices.Equal(ids, []int{pid}) {
		t.Errorf("processes %v, %v, want %d", ids, err, pid)
	}
}

func TestV1GroupMayExistInSomeHierarchiesOnly(t *testing.T) {
	tree, path := v1Group(t, memory)
	partial := path + "/partial"
	dir, err := tree.Dir(memory, partial)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	pid := start(t, "sleep", "60").Process.Pid
	if err := tree.Attach(partial, pid); err != nil {
		t.Fatal(err)
	}
	if ids, err := tree.Procs(partial); err != nil || !slices.Equal(ids, []int{pid}) {
		t.Errorf("processes %v, %v, want %d", ids, err, pid)
	}
	if _, err := tree.ReadCPUWeight(partial); !errors.Is(err, ErrGone) {
		t.Errorf("weight: got %v, want ErrGone", err)
	}
	if err := tree.Make(partial); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.ReadCPUWeight(partial); err != nil {
		t.Errorf("weight after Make: %v", err)
	}
}
