// Package limit says which limits of the kernel follow from what a container
// asks for: one rule for the container runtime, which sets them before the first
// instruction runs (NRI), for each tick after that, and for the values that a
// release gives back to the kubelet.
//
// It is a room of its own, and not part of a policy: callers outside of the
// policies use it, and it needs nothing but the vocabulary.
package limit

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Quota is the CPU time in each period that a limit allows, in whole
// microseconds and no less than the kernel takes; node.NoQuota without a limit.
// It is the kubelet's arithmetic, so that both write the same value
// (k8s.io/kubernetes/pkg/kubelet/cm: MilliCPUToQuota).
func Quota(limit node.Maybe[unit.MilliCPU], period time.Duration) time.Duration {
	m, limited := limit.Value()
	if !limited {
		return node.NoQuota
	}
	return max((time.Duration(m) * period / 1000).Truncate(time.Microsecond), node.MinQuota)
}

// CPU is the cpu.max that Tenon sets for a container of a workload, or for the
// workload's own cgroup given as a container. It has no quota where the owner set
// no limit. Ours is false where another component, such as the kubelet, manages
// the limit.
func CPU(w node.Workload, c node.Container) (v node.CPUMax, ours bool) {
	if w.CPUManagedExternally {
		return node.CPUMax{}, false
	}
	return node.CPUMax{Quota: Quota(c.CPULimit, node.DefaultPeriod), Period: node.DefaultPeriod}, true
}

// Memory is the memory.max that Tenon sets, as CPU is the cpu.max: unit.MaxBytes
// without a limit.
func Memory(w node.Workload, c node.Container) (most unit.Bytes, ours bool) {
	if w.MemoryManagedExternally {
		return 0, false
	}
	return c.MemoryLimit.Or(unit.MaxBytes), true
}
