// This file derives the kernel limits of a container from its requests and
// limits. Three parts of Tenon need the same rule. The container runtime sets
// these limits before the first instruction runs (NRI), every later tick sets
// them, and a release gives them back to the kubelet.
//
// The package is not part of a policy, because code outside the policies uses
// it, and it needs only the types of model/node.

package facts

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// maxQuota is more than any machine has. With a larger limit, the multiplication
// by a period of at most a second could overflow, and the quota of a huge limit
// would be the least one.
const maxQuota = 1_000_000 * unit.MilliCPU(1000)

// QuotaOf returns how much CPU time per period a limit allows. The result is in
// whole microseconds, and at least node.MinQuota. If there is no limit, it is
// node.NoQuota. The kubelet computes the quota in the same way, so both write
// the same value (k8s.io/kubernetes/pkg/kubelet/cm: MilliCPUToQuota).
func QuotaOf(limit node.Maybe[unit.MilliCPU], period time.Duration) time.Duration {
	m, limited := limit.Value()
	if !limited {
		return node.NoQuota
	}
	m = min(m, maxQuota)
	return max((time.Duration(m) * period / 1000).Truncate(time.Microsecond), node.MinQuota)
}

// CPULimit returns the cpu.max that Tenon sets for the container c of w. For the
// cgroup of the workload itself, pass a container with the limits of the whole
// workload. If c has no CPU limit, v has no quota. ours is false if another
// component, such as the kubelet, manages the limit.
func CPULimit(w *node.Workload, c *node.Container) (v node.CPUMax, ours bool) {
	if w.CPUManagedExternally {
		return node.CPUMax{}, false
	}
	return node.CPUMax{Quota: QuotaOf(c.CPULimit, node.DefaultPeriod), Period: node.DefaultPeriod}, true
}

// MemoryLimit returns the memory.max that Tenon sets for c, or unit.MaxBytes if c
// has no memory limit. The arguments and the result ours are as for CPU.
func MemoryLimit(w *node.Workload, c *node.Container) (most unit.Bytes, ours bool) {
	if w.MemoryManagedExternally {
		return 0, false
	}
	return c.MemoryLimit.Or(unit.MaxBytes), true
}
