package scx

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// kfuncs returns the sched_ext functions that a program calls.
func kfuncs(spec *ebpf.CollectionSpec) []string {
	names := map[string]bool{}
	for _, p := range spec.Programs {
		for _, ins := range p.Instructions {
			if f := ins.Reference(); strings.Contains(f, "scx_bpf_") && ins.IsKfuncCall() {
				names[f] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestEveryVariantIsWhole checks the objects in the source tree: their
// programs, operations and functions.
func TestEveryVariantIsWhole(t *testing.T) {
	ops := []string{"dispatch", "enable", "enqueue", "exit", "init", "running", "select_cpu", "set_cpumask", "stopping", "tick"}
	own := map[Variant][]string{
		V612: {"scx_bpf_consume", "scx_bpf_dispatch", "scx_bpf_dispatch_vtime", "scx_bpf_reenqueue_local"},
		V613: {"scx_bpf_dsq_insert", "scx_bpf_dsq_insert_vtime", "scx_bpf_dsq_move_to_local", "scx_bpf_reenqueue_local"},
		V619: {"__scx_bpf_dsq_insert_vtime", "scx_bpf_dsq_insert___v2", "scx_bpf_dsq_move_to_local", "scx_bpf_reenqueue_local___v2"},
		V71:  {"__scx_bpf_dsq_insert_vtime", "scx_bpf_dsq_insert___v2", "scx_bpf_dsq_move_to_local___v2", "scx_bpf_reenqueue_local___v2"},
	}
	foreign := map[string]bool{}
	for _, names := range own {
		for _, name := range names {
			foreign[name] = true
		}
	}
	for _, v := range variants {
		t.Run(string(v.variant), func(t *testing.T) {
			spec, err := v.spec()
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Clone(ops)
			if v.variant == V612 || v.variant == V613 {
				want = append(want, "cpu_release")
			}
			slices.Sort(want)
			var got []string
			for name, p := range spec.Programs {
				if p.Type != ebpf.StructOps {
					if name != scheduler613ProgTenonSwitched {
						t.Errorf("program %s is a %v", name, p.Type)
					}
					continue
				}
				// The kernel loads only programs that are in the table.
				member, found := strings.CutPrefix(p.AttachTo, "sched_ext_ops:")
				if !found {
					t.Errorf("program %s is in no table of operations: %q", name, p.AttachTo)
				}
				got = append(got, member)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			var calls []string
			for _, name := range kfuncs(spec) {
				if foreign[name] {
					calls = append(calls, name)
				}
			}
			if diff := cmp.Diff(own[v.variant], calls); diff != "" {
				t.Errorf("functions of this variant alone (-want +got):\n%s", diff)
			}
			if spec.Maps[scheduler613MapTenon].Type != ebpf.StructOpsMap {
				t.Errorf("the table of operations is a %v", spec.Maps[scheduler613MapTenon].Type)
			}
		})
	}
}

// TestMachineFitsEveryVariant prepares each variant as Load does, but does not
// load it.
func TestMachineFitsEveryVariant(t *testing.T) {
	l, err := newLayout(cpus(2, 2, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		spec, err := v.spec()
		if err != nil {
			t.Fatal(err)
		}
		if err := fit(spec, Options{CgroupVersion: 2}, l); err != nil {
			t.Error(err)
		}
		if err := setOps(spec.Maps[scheduler613MapTenon], Options{Timeout: maxTimeout}, 7, false); err != nil {
			t.Error(err)
		}
	}
}

func TestKernelAtHandIsTold(t *testing.T) {
	if _, err := btf.LoadKernelSpec(); err != nil {
		t.Skipf("the kernel's types cannot be read: %v", err)
	}
	now, loadedErr := readLoaded(sysfs)
	v, err := Probe()
	t.Log(v, err, now)
	if (err == nil) != (loadedErr == nil) {
		t.Errorf("Probe returns %v, %v; reading the files of sched_ext returns %v", v, err, loadedErr)
	}
}
