package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// These are the batch and mid resources. CPU is in thousandths of a CPU, so
// "1k" is one CPU. Memory is in bytes.
const (
	BatchCPU    corev1.ResourceName = "kubernetes.io/batch-cpu"
	BatchMemory corev1.ResourceName = "kubernetes.io/batch-memory"
	MidCPU      corev1.ResourceName = "kubernetes.io/mid-cpu"
	MidMemory   corev1.ResourceName = "kubernetes.io/mid-memory"
)

// A kind is one resource with all its names. If a container uses several of the
// names, the first of them applies.
type kind struct {
	names []corev1.ResourceName
	// milli means that amounts with these names are in thousandths of a CPU.
	milli bool
}

// Tenon also reads the old names: koordinator.sh/* from Koordinator before 1.0,
// and alibabacloud.com/* from ACK before 0.8.0.
var (
	batchCPU    = kind{[]corev1.ResourceName{BatchCPU, "koordinator.sh/batch-cpu", "alibabacloud.com/reclaimed-cpu", "alibabacloud.com/reclaimed"}, true}
	batchMemory = kind{[]corev1.ResourceName{BatchMemory, "koordinator.sh/batch-memory", "alibabacloud.com/reclaimed-memory"}, false}
	midCPU      = kind{[]corev1.ResourceName{MidCPU}, true}
	midMemory   = kind{[]corev1.ResourceName{MidMemory}, false}
	nativeCPU   = kind{[]corev1.ResourceName{corev1.ResourceCPU}, false}
	nativeMem   = kind{[]corev1.ResourceName{corev1.ResourceMemory}, false}
)

// IsBatch reports whether name is a present or an old name of a batch resource.
func IsBatch(name corev1.ResourceName) bool {
	return batchCPU.has(name) || batchMemory.has(name)
}

// BatchNames returns all present and old names of the batch resources.
func BatchNames() []corev1.ResourceName { return slices.Concat(batchCPU.names, batchMemory.names) }

func (k kind) has(name corev1.ResourceName) bool {
	for _, n := range k.names {
		if n == name {
			return true
		}
	}
	return false
}

// amountIn returns the amount of the resource in a list, in thousandths of a
// CPU or in bytes. It treats a negative amount as absent. An amount above
// quantity.Max counts as quantity.Max. Requests and limits are rounded up, as
// the kubelet does.
func (k kind) amountIn(list corev1.ResourceList, r unit.Rounding) node.Maybe[int64] {
	for _, name := range k.names {
		q, asked := list[name]
		if !asked || q.Sign() < 0 {
			continue
		}
		if name == corev1.ResourceCPU {
			return node.Some(int64(quantity.CPU(q, r)))
		}
		return node.Some(quantity.Whole(q, r))
	}
	return node.Maybe[int64]{}
}

// An Amounts holds the CPU and memory requests and limits of a pod or container.
type Amounts struct {
	CPURequest, CPULimit       node.Maybe[unit.MilliCPU]
	MemoryRequest, MemoryLimit node.Maybe[unit.Bytes]
}

// amountsOf returns the amounts of a container. If a request is missing, the
// limit replaces it, as in the API server.
func amountsOf(r corev1.ResourceRequirements, cpu, memory kind) Amounts {
	var a Amounts
	a.CPULimit = as[unit.MilliCPU](dropZero(cpu.amountIn(r.Limits, unit.Up)))
	a.MemoryLimit = as[unit.Bytes](dropZero(memory.amountIn(r.Limits, unit.Up)))
	a.CPURequest, a.MemoryRequest = as[unit.MilliCPU](cpu.amountIn(r.Requests, unit.Up)), as[unit.Bytes](memory.amountIn(r.Requests, unit.Up))
	if !a.CPURequest.Known() {
		a.CPURequest = a.CPULimit
	}
	if !a.MemoryRequest.Known() {
		a.MemoryRequest = a.MemoryLimit
	}
	return a
}

// dropZero drops a limit of 0, which means no limit to the kubelet.
func dropZero(m node.Maybe[int64]) node.Maybe[int64] {
	if m.Or(0) == 0 {
		return node.Maybe[int64]{}
	}
	return m
}

func as[T ~int64](m node.Maybe[int64]) node.Maybe[T] {
	if v, known := m.Value(); known {
		return node.Some(T(v))
	}
	return node.Maybe[T]{}
}

// Native returns the amounts of cpu and memory of a pod, as the kubelet counts
// them (see podSum).
func Native(p *corev1.Pod) Amounts {
	a := podSum(p, nativeCPU, nativeMem, nil, podOverhead(p))
	if r := p.Spec.Resources; r != nil { // amounts at pod level replace the sum
		whole := amountsOf(*r, nativeCPU, nativeMem)
		over := podOverhead(p)
		a.CPURequest, a.CPULimit = first(plusKnown(whole.CPURequest, over.CPURequest), a.CPURequest), first(plusKnown(whole.CPULimit, over.CPURequest), a.CPULimit)
		a.MemoryRequest = first(plusKnown(whole.MemoryRequest, over.MemoryRequest), a.MemoryRequest)
		a.MemoryLimit = first(plusKnown(whole.MemoryLimit, over.MemoryRequest), a.MemoryLimit)
	}
	return a
}

// Batch returns the batch resources of a pod, by the rules of podSum. If the
// spec of a container has none, its batch resources come from the annotation
// extended-resource-spec.
func Batch(p *corev1.Pod) Amounts {
	said, _ := Extended(p)
	return podSum(p, batchCPU, batchMemory, said, podOverhead(p))
}

// Requested returns the batch resources that the kubelet counts when it admits a
// pod. The kubelet counts the resources of node.status, for containers and
// overhead. It ignores old names and the annotation extended-resource-spec
// (k8s.io/component-helpers/resource: PodRequests).
func Requested(p *corev1.Pod) (unit.MilliCPU, unit.Bytes) {
	cpu, memory := kind{[]corev1.ResourceName{BatchCPU}, true}, kind{[]corev1.ResourceName{BatchMemory}, false}
	a := podSum(p, cpu, memory, nil, amountsOf(corev1.ResourceRequirements{Requests: p.Spec.Overhead}, cpu, memory))
	return a.CPURequest.Or(0), a.MemoryRequest.Or(0)
}

// Reserve returns the CPU that the kubelet withholds from the pods of a node
// (kubeReserved, systemReserved).
func Reserve(n *corev1.Node) unit.MilliCPU {
	whole, left := nativeCPU.amountIn(n.Status.Capacity, unit.Up), nativeCPU.amountIn(n.Status.Allocatable, unit.Down)
	if !whole.Known() || !left.Known() {
		return 0
	}
	return unit.MilliCPU(max(whole.Or(0)-left.Or(0), 0))
}

// MemoryCapacity returns the memory of a node without its huge pages, which are
// resources of their own. The kubelet subtracts their capacity from allocatable
// memory, but not from the capacity.
func MemoryCapacity(n *corev1.Node) resource.Quantity {
	all := n.Status.Capacity[corev1.ResourceMemory].DeepCopy()
	for name, q := range n.Status.Capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) && q.Sign() > 0 {
			all.Sub(q)
		}
	}
	return all
}

// Mid returns the amounts of mid resources of a pod.
func Mid(p *corev1.Pod) Amounts { return podSum(p, midCPU, midMemory, nil, podOverhead(p)) }

// podSum adds up the amounts of the containers of a pod. Init containers run
// one after the other before the main containers. If the largest init container
// has more than the sum of the main containers, its amount is the result. A
// sidecar (an init container with restartPolicy Always) adds to all containers
// that start after it (KEP-753). The overhead of the pod is added at the end.
// If one container has no limit, the pod has no limit, because that container
// may use any amount (k8s.io/kubernetes/pkg/kubelet/cm: ResourceConfigForPod).
func podSum(p *corev1.Pod, cpu, memory kind, said map[string]corev1.ResourceRequirements, over Amounts) Amounts {
	each, init := make([]Amounts, 0, 4), make([]bool, 0, 4)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		each = append(each, containerSum(*c, cpu, memory, said))
		init = append(init, c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways)
	}
	for i := range p.Spec.Containers {
		each = append(each, containerSum(p.Spec.Containers[i], cpu, memory, said))
		init = append(init, false)
	}
	return Amounts{
		CPURequest:    sum(each, init, false, over.CPURequest, func(a Amounts) node.Maybe[unit.MilliCPU] { return a.CPURequest }),
		CPULimit:      sum(each, init, true, over.CPURequest, func(a Amounts) node.Maybe[unit.MilliCPU] { return a.CPULimit }),
		MemoryRequest: sum(each, init, false, over.MemoryRequest, func(a Amounts) node.Maybe[unit.Bytes] { return a.MemoryRequest }),
		MemoryLimit:   sum(each, init, true, over.MemoryRequest, func(a Amounts) node.Maybe[unit.Bytes] { return a.MemoryLimit }),
	}
}

// containerSum returns the amounts of one container.
func containerSum(c corev1.Container, cpu, memory kind, said map[string]corev1.ResourceRequirements) Amounts {
	if a := amountsOf(c.Resources, cpu, memory); a != (Amounts{}) {
		return a
	}
	return amountsOf(said[c.Name], cpu, memory)
}

// podOverhead returns the overhead of the runtime for a pod (spec.overhead),
// which is charged to the cgroup of the pod. It is always in cpu and memory:
// the API server requires that it equals the overhead of the RuntimeClass.
func podOverhead(p *corev1.Pod) Amounts {
	return amountsOf(corev1.ResourceRequirements{Requests: p.Spec.Overhead}, nativeCPU, nativeMem)
}

// sum adds up one amount over the containers, in the order of their start. The
// function of selects the amount. If all is set and one container lacks the
// amount, the sum is absent.
func sum[T ~int64](each []Amounts, init []bool, all bool, over node.Maybe[T], of func(Amounts) node.Maybe[T]) node.Maybe[T] {
	var running, most T // running: sidecars so far; most: the maximum at any time
	some := false
	for i, a := range each {
		v, known := of(a).Value()
		if !known && all {
			return node.Maybe[T]{}
		}
		some = some || known
		if init[i] {
			most = max(most, addAmounts(running, v))
		} else {
			running = addAmounts(running, v)
		}
	}
	if !some {
		return node.Maybe[T]{}
	}
	return node.Some(addAmounts(max(running, most), over.Or(0)))
}

// addAmounts adds two amounts of 0 to quantity.Max. A sum above quantity.Max
// counts as quantity.Max, so that the sums over many pods do not overflow.
func addAmounts[T ~int64](a, b T) T { return min(a+b, quantity.Max) }

func plusKnown[T ~int64](a, b node.Maybe[T]) node.Maybe[T] {
	if v, known := a.Value(); known {
		return node.Some(addAmounts(v, b.Or(0)))
	}
	return a
}

func first[T any](a, b node.Maybe[T]) node.Maybe[T] {
	if a.Known() {
		return a
	}
	return b
}

// Weight returns the CPU weight for a CPU request. By the formula of the
// kubelet, each CPU is 1024 shares.
func Weight(request unit.MilliCPU) unit.Weight {
	return unit.WeightOfShares(int64(Shares(request)))
}
