package cgroup

import (
	"errors"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

func TestWhatIsMissingIsUnsupported(t *testing.T) {
	v1 := fixture(t, groupV1)
	bare := fixture(t, onlyV2+"-- v2/a/cpu.weight --\n100\n-- v2/a/cpu.max --\nmax 100000\n")
	noMemory := fixture(t, "-- proc/self/mountinfo --\n33 25 0:30 / ROOT/cpu rw - cgroup cgroup rw,cpu\n-- cpu/a/tasks --\n")
	errorOf := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"idle on an old kernel":        bare.WriteCPUWeight("a", CPUWeight{Idle: true}),
		"burst on an old kernel":       bare.WriteCPUMax("a", CPUMax{Quota: 1e9, Period: 1e8, Burst: 1e6}),
		"cpuset that is not enabled":   errorOf(bare.ReadCPUs("a")),
		"memory high on v1":            v1.WriteMemory("a", Memory{High: 1 << 20, Max: unit.MaxBytes}),
		"memory low on v1":             v1.WriteMemory("a", Memory{Low: 1 << 20, High: unit.MaxBytes, Max: unit.MaxBytes}),
		"partition on v1":              errorOf(v1.Partition("a")),
		"pressure on v1":               errorOf(v1.Pressure("a", "cpu")),
		"read of an absent controller": errorOf(noMemory.ReadMemory("a")),
		"write to an absent one":       noMemory.WriteLimit("a", "pids.max", Maximum{1}),
		"usage without cpuacct":        errorOf(noMemory.CPUStat("a")),
	} {
		if !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrGone) {
			t.Errorf("%s: got %v, want ErrUnsupported", name, err)
		}
	}
	if v, err := bare.ReadCPUWeight("a"); err != nil || v.Idle || v.Weight != unit.WeightOf(100) {
		t.Errorf("weight without cpu.idle: %+v, %v", v, err)
	}
	if got := content(t, bare, cpu, "a", "cpu.max"); got != "max 100000" {
		t.Errorf("a refused burst left cpu.max at %q", got)
	}
}

func TestMissingGroupIsGone(t *testing.T) {
	for name, archive := range map[string]string{"v2": groupV2, "v1": groupV1} {
		t.Run(name, func(t *testing.T) {
			tree := fixture(t, archive)
			errorOf := func(_ any, err error) error { return err }
			for name, err := range map[string]error{
				"weight":       errorOf(tree.ReadCPUWeight("b")),
				"write weight": tree.WriteCPUWeight("b", CPUWeight{Weight: 1}),
				"max":          errorOf(tree.ReadCPUMax("b")),
				"write max":    tree.WriteCPUMax("b", CPUMax{Quota: 1e9, Period: 1e8}),
				"memory":       errorOf(tree.ReadMemory("b")),
				"write memory": tree.WriteMemory("b", noMemoryLimit),
				"cpus":         errorOf(tree.ReadCPUs("b")),
				"write cpus":   tree.WriteCPUs("b", unit.CPUSetOf(0)),
				"children":     errorOf(tree.Children("b")),
				"procs":        errorOf(tree.Procs("b")),
				"inode":        errorOf(tree.Inode("b")),
				"attach":       tree.Attach("b", 1),
				"stat":         errorOf(tree.CPUStat("b")),
			} {
				if !errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) {
					t.Errorf("%s: got %v, want ErrGone", name, err)
				}
			}
			if err := tree.RemoveAll("b"); err != nil {
				t.Errorf("Remove of a missing group: %v", err)
			}
		})
	}
}

func TestErrorsNameFileValueAndGroup(t *testing.T) {
	tree := fixture(t, onlyV2+"-- v2/be/a/cpu.max --\nlots\n-- v2/be/a/tasks --\n")
	_, err := tree.ReadCPUMax("be/a")
	if err == nil || !strings.Contains(err.Error(), `parse cpu.max in be/a: "lots"`) {
		t.Errorf("read: %v", err)
	}
	err = tree.WriteCPUs("be/a", unit.CPUSetOf(1))
	if err == nil || !strings.HasPrefix(err.Error(), `write cpuset.cpus "1" in be/a: `) {
		t.Errorf("write: %v", err)
	}
}
