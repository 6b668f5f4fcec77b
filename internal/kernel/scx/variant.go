package scx

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target bpfel -tags linux -no-global-types scheduler612 ../../../bpf/scheduler.bpf.c -- -DABI=612 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target bpfel -tags linux -no-global-types -type scx_limit -type scx_count -type scx_event_kind -type scx_event -type scx_end -type scx_cpu -type scx_shard -type scx_pod -type scx_group -type scx_place -type scx_siblings -type scx_range -type qos_core -type qos_pod -type qos_params -type qos_class -type qos_verdict scheduler613 ../../../bpf/scheduler.bpf.c -- -DABI=613 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target bpfel -tags linux -no-global-types scheduler619 ../../../bpf/scheduler.bpf.c -- -DABI=619 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target bpfel -tags linux -no-global-types scheduler701 ../../../bpf/scheduler.bpf.c -- -DABI=701 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror

// A Variant is a form of the kernel's sched_ext interface. Its name is the
// version of the first kernel with this form. Load recognises it by the
// functions that the kernel declares, never by the version of the kernel.
type Variant string

// The variants. A kernel between two of these versions has the older variant.
const (
	V612 Variant = "6.12" // the original names of the functions
	V613 Variant = "6.13" // the present names of the functions
	V619 Variant = "6.19" // most functions return whether they succeeded
	V71  Variant = "7.1"  // the function that moves a task to a CPU also returns this
)

// variants lists the variants, newest first. marks is a function that a variant
// has and the older ones do not have.
var variants = []struct {
	variant Variant
	marks   string
	spec    func() (*ebpf.CollectionSpec, error)
}{
	{V71, "scx_bpf_dsq_move_to_local___v2", loadScheduler701},
	{V619, "scx_bpf_dsq_insert___v2", loadScheduler619},
	{V613, "scx_bpf_dsq_insert", loadScheduler613},
	{V612, "scx_bpf_dispatch", loadScheduler612},
}

// Probe determines the variant of this kernel without loading a program. If the
// scheduler cannot run, it returns ErrUnsupported with the reason: no
// CONFIG_SCHED_CLASS_EXT, no BTF, or an unknown interface. It reads the
// kernel's types, which takes tens of milliseconds.
func Probe() (Variant, error) {
	v, err := probe(btf.NewCache())
	if err != nil {
		return "", fmt.Errorf("look for sched_ext: %w", err)
	}
	return v, nil
}

func probe(types *btf.Cache) (Variant, error) {
	kernel, err := types.Kernel()
	if errors.Is(err, btf.ErrNotSupported) {
		return "", fmt.Errorf("read the kernel's types (CONFIG_DEBUG_INFO_BTF): %w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return "", fmt.Errorf("read the kernel's types: %w", err)
	}
	return variantOf(kernel)
}

// variantOf determines the variant of a kernel from its types.
func variantOf(kernel *btf.Spec) (Variant, error) {
	if !declares(kernel, "bpf_struct_ops_sched_ext_ops") {
		return "", fmt.Errorf("the kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT, Linux 6.12): %w", ErrUnsupported)
	}
	for _, v := range variants {
		if declares(kernel, v.marks) {
			return v.variant, nil
		}
	}
	return "", fmt.Errorf("the kernel's sched_ext has no %s and none of its later names: %w", variants[len(variants)-1].marks, ErrUnsupported)
}

// declares reports whether the kernel has a type or function of exactly this
// name. The library may also return types with other names.
func declares(kernel *btf.Spec, name string) bool {
	found, err := kernel.AnyTypesByName(name)
	if err != nil {
		return false
	}
	for _, t := range found {
		if t.TypeName() == name {
			return true
		}
	}
	return false
}

// spec returns the BPF programs of the variant.
func (v Variant) spec() (*ebpf.CollectionSpec, error) {
	for _, known := range variants {
		if known.variant == v {
			return known.spec()
		}
	}
	return nil, fmt.Errorf("no program for variant %q", v)
}
