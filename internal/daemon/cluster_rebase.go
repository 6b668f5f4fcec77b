package daemon

import (
	"time"

	"tenon.sh/tenon/internal/kube"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// rebase sees to it that a release gives back what the kubelet would have
// written by now, and not what stood there before Tenon: a pod may have been
// resized since. What the kubelet did not enforce at first it does not enforce
// after; before is what the owners of pods asked for when the journal was right.
func rebase(before, now map[node.CgroupPath]kube.Amounts) func(node.Knob, node.Value) node.Value {
	return func(k node.Knob, v node.Value) node.Value {
		was, had := before[k.Cgroup]
		is, has := now[k.Cgroup]
		if !had || !has || was == is {
			return nil
		}
		switch v := v.(type) {
		case node.CPUMax:
			if was.CPULimit != is.CPULimit && (v.Quota != node.NoQuota || !was.CPULimit.Known()) {
				v.Quota = quotaOf(is.CPULimit, v.Period)
				v.Burst = min(v.Burst, v.Quota)
				return v
			}
		case node.CPUWeight:
			if was.CPURequest != is.CPURequest && !v.Idle {
				v.Weight = kube.Weight(is.CPURequest.Or(0))
				return v
			}
		case node.Memory:
			if was.MemoryLimit != is.MemoryLimit && (v.Max != unit.MaxBytes || !was.MemoryLimit.Known()) {
				v.Max = is.MemoryLimit.Or(unit.MaxBytes)
				return v
			}
		}
		return nil
	}
}

// leastQuota is the least that the kernel takes, and so the kubelet writes
// (k8s.io/kubernetes/pkg/kubelet/cm: MinQuotaPeriod).
const leastQuota = time.Millisecond

// quotaOf is the quota that the kubelet makes of a CPU limit.
func quotaOf(limit node.Maybe[unit.MilliCPU], period time.Duration) time.Duration {
	m, limited := limit.Value()
	if !limited {
		return node.NoQuota
	}
	return max((time.Duration(m) * period / 1000).Truncate(time.Microsecond), leastQuota)
}
