package cgroup

import (
	"errors"
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
