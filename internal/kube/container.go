package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// A Bound is what Tenon gives a container in the kubelet's place; what is not
// known stays the kubelet's. A limit that the owner did not ask for is none.
type Bound struct {
	// CPU and Memory say which of the two Tenon sees to.
	CPU, Memory bool
	CPURequest  unit.MilliCPU
	CPULimit    node.Maybe[unit.MilliCPU]
	MemoryLimit node.Maybe[unit.Bytes]
}

// ContainerBound is what a container of best-effort work is bounded by: that of
// Workloads' parts, for a container that does not exist yet. Spec says whether
// p has a spec; what the runtime knows of a pod has labels and annotations only,
// so what extended-resource-spec does not say is not known then: false.
func ContainerBound(p *corev1.Pod, name string, spec bool) (Bound, bool) {
	if c := Class(p); c != node.BE && (c != "" || !spec || ClassWithDefault(p) != node.BE) {
		return Bound{}, false
	}
	said, faults := Extended(p)
	if len(faults) > 0 && !spec {
		return Bound{}, false
	}
	var c corev1.Container
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	if i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		c = all[i]
	} else if _, known := said[name]; !known || spec {
		return Bound{}, false
	} else {
		c.Name = name
	}
	own, whole := containerSum(c, batchCPU, batchMemory, said), Batch(p)
	if !spec {
		whole = own
	}
	// What a container asks for under the native names the kubelet enforces: to
	// put nothing in its place would take the limit away.
	kept := amountsOf(c.Resources, nativeCPU, nativeMem)
	b := Bound{
		CPU:        whole.CPURequest.Known() && (own.CPURequest.Known() || kept.CPURequest.Or(0) == 0),
		Memory:     whole.MemoryRequest.Known() && (own.MemoryRequest.Known() || kept.MemoryRequest.Or(0) == 0),
		CPURequest: own.CPURequest.Or(0), CPULimit: own.CPULimit, MemoryLimit: own.MemoryLimit,
	}
	if !b.CPU {
		b.CPURequest, b.CPULimit = 0, node.Maybe[unit.MilliCPU]{}
	}
	if !b.Memory {
		b.MemoryLimit = node.Maybe[unit.Bytes]{}
	}
	return b, b.CPU || b.Memory
}

// Shares are the CPU shares of cgroup v1 that a request stands for, as the
// kubelet has it: 1024 for a CPU (k8s.io/kubernetes/pkg/kubelet/cm:
// MilliCPUToShares).
func Shares(request unit.MilliCPU) uint64 {
	return uint64(min(max(int64(min(request, 1<<40))*1024/1000, unit.MinShares), unit.MaxShares))
}
