// Package limit derives the kernel limits of a container from its requests and
// limits. One rule serves the container runtime, which sets the limits before
// the first instruction runs (NRI), every later tick, and the values that a
// release gives back to the kubelet.
//
// It is not part of a policy, because code outside the policies uses it and it
// needs only the vocabulary.
package limit

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Quota returns the CPU time per period that a limit allows, in whole
// microseconds and at least node.MinQuota. It is node.NoQuota if there is no
// limit. The kubelet computes it in the same way, so both write the same value
// (k8s.io/kubernetes/pkg/kubelet/cm: MilliCPUToQuota).
func Quota(limit node.Maybe[unit.MilliCPU], period time.Duration) time.Duration {
	m, limited := limit.Value()
	if !limited {
		return node.NoQuota
	}
	return max((time.Duration(m) * period / 1000).Truncate(time.Microsecond), node.MinQuota)
}

// CPU returns the cpu.max that Tenon sets for a container of a workload, or for
// the workload's own cgroup passed as a container. Without a CPU limit it has
// no quota. Ours is false if another component, such as the kubelet, manages
// the limit.
func CPU(w node.Workload, c node.Container) (v node.CPUMax, ours bool) {
	if w.CPUManagedExternally {
		return node.CPUMax{}, false
	}
	return node.CPUMax{Quota: Quota(c.CPULimit, node.DefaultPeriod), Period: node.DefaultPeriod}, true
}

// Memory returns the memory.max that Tenon sets, with the parameters and
// results of CPU. Without a memory limit it is unit.MaxBytes.
func Memory(w node.Workload, c node.Container) (most unit.Bytes, ours bool) {
	if w.MemoryManagedExternally {
		return 0, false
	}
	return c.MemoryLimit.Or(unit.MaxBytes), true
}
