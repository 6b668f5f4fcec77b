package rqdelay

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// required lists the fields of kernel structures that the program reads. Only
// kernels with the option config have the field.
var required = []struct{ structure, field, config string }{
	{"task_struct", "cgroups", "CONFIG_CGROUPS"},
	{"task_struct", "sched_task_group", "CONFIG_CGROUP_SCHED"},
	{"sched_entity", "cfs_rq", "CONFIG_FAIR_GROUP_SCHED"},
	{"sched_info", "last_queued", "CONFIG_SCHED_INFO (by CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT)"},
}

// checkFields returns an error that names a missing field. The loader's own
// error would name only the number of an instruction.
func checkFields(types *btf.Cache) error {
	kernel, err := types.Kernel()
	if err != nil {
		if errors.Is(err, btf.ErrNotSupported) {
			return fmt.Errorf("read the kernel's types (CONFIG_DEBUG_INFO_BTF): %w: %w", ErrUnsupported, err)
		}
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	for _, r := range required {
		var s *btf.Struct
		if err := kernel.TypeByName(r.structure, &s); err != nil {
			return fmt.Errorf("find struct %s in the kernel's types: %w", r.structure, err)
		}
		if !hasField(s.Members, r.field) {
			return fmt.Errorf("struct %s has no %s, which comes with %s: %w", r.structure, r.field, r.config, ErrUnsupported)
		}
	}
	return nil
}

// hasField looks for a field. It also looks inside anonymous members.
func hasField(members []btf.Member, field string) bool {
	for _, m := range members {
		if m.Name == field {
			return true
		}
		if m.Name != "" {
			continue
		}
		switch inner := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			if hasField(inner.Members, field) {
				return true
			}
		case *btf.Union:
			if hasField(inner.Members, field) {
				return true
			}
		}
	}
	return false
}
