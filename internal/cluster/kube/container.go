package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Starting returns a BE container that the runtime is about to create, and its pod.
// Workloads will later return both in the same form, so the limits stay the same. spec
// must be false if p comes from the runtime, which knows only labels and annotations.
// Then the resources come only from the annotation extended-resource-spec. ours is
// false if Tenon manages no limit of the container.
func Starting(p *corev1.Pod, name string, spec bool) (w node.Workload, c node.Container, ours bool) {
	if c := Class(p); IsIgnored(p) || c != node.BE && (c != "" || !spec || ClassWithDefault(p) != node.BE) {
		return node.Workload{}, node.Container{}, false
	}
	said, faults := Extended(p)
	if len(faults) > 0 && !spec {
		return node.Workload{}, node.Container{}, false
	}
	of := corev1.Container{Name: name}
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	if i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		of = all[i]
	} else if _, known := said[name]; !known || spec {
		return node.Workload{}, node.Container{}, false
	}
	own, whole := containerSum(of, batchCPU, batchMemory, said), Batch(p)
	if !spec {
		whole = own
	}
	// The kubelet enforces a limit of cpu or memory. A limit of batch resources
	// replaces it. Without a spec, Tenon does not know whether there is a limit of
	// cpu or memory, and leaves it to the kubelet.
	native := amountsOf(of.Resources, nativeCPU, nativeMem)
	cpu := whole.CPURequest.Known() && (own.CPULimit.Known() || spec && native.CPULimit.Or(0) == 0)
	memory := whole.MemoryRequest.Known() && (own.MemoryLimit.Known() || spec && native.MemoryLimit.Or(0) == 0)
	w = node.Workload{ID: node.WorkloadID(NameOf(p)), Class: node.BE, CPUManagedExternally: !cpu, MemoryManagedExternally: !memory}
	told := !spec && own != (Amounts{}) // the annotation alone decides
	return w, partOf(of, cpu, memory, said), cpu || memory || told
}

// partOf returns a container with its amounts. batchOfCPU and batchOfMemory
// select batch resources in place of cpu and memory.
func partOf(c corev1.Container, batchOfCPU, batchOfMemory bool, said map[string]corev1.ResourceRequirements) node.Container {
	each := choose(batchOfCPU, batchOfMemory, containerSum(c, batchCPU, batchMemory, said), containerSum(c, nativeCPU, nativeMem, nil))
	return node.Container{
		Name: c.Name, CPULimit: each.CPULimit, MemoryLimit: each.MemoryLimit,
		CPURequest: each.CPURequest, MemoryRequest: each.MemoryRequest, Weight: weightOf(each.CPURequest, batchOfCPU),
	}
}

// Shares returns the CPU shares (cgroup v1) for a CPU request, by the formula
// of the kubelet: 1024 for each CPU (k8s.io/kubernetes/pkg/kubelet/cm:
// MilliCPUToShares).
func Shares(request unit.MilliCPU) uint64 {
	return uint64(min(max(int64(min(request, 1<<40))*1024/1000, unit.MinShares), unit.MaxShares))
}
