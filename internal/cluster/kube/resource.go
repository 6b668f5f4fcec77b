package kube

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// The resources that batch and mid work asks for. CPU is in thousandths of one:
// "1k" is one CPU. Memory is in bytes.
const (
	BatchCPU    corev1.ResourceName = "kubernetes.io/batch-cpu"
	BatchMemory corev1.ResourceName = "kubernetes.io/batch-memory"
	MidCPU      corev1.ResourceName = "kubernetes.io/mid-cpu"
	MidMemory   corev1.ResourceName = "kubernetes.io/mid-memory"
)

// A kind is one resource under all its names. The first that a container has
// counts.
type kind struct {
	names []corev1.ResourceName
	// milli: the number under these names is of thousandths.
	milli bool
}

// The names of before are read like those of today: koordinator.sh/* of
// Koordinator before 1.0, alibabacloud.com/* of ACK before 0.8.0.
var (
	batchCPU    = kind{[]corev1.ResourceName{BatchCPU, "koordinator.sh/batch-cpu", "alibabacloud.com/reclaimed-cpu", "alibabacloud.com/reclaimed"}, true}
	batchMemory = kind{[]corev1.ResourceName{BatchMemory, "koordinator.sh/batch-memory", "alibabacloud.com/reclaimed-memory"}, false}
	midCPU      = kind{[]corev1.ResourceName{MidCPU}, true}
	midMemory   = kind{[]corev1.ResourceName{MidMemory}, false}
	nativeCPU   = kind{[]corev1.ResourceName{corev1.ResourceCPU}, false}
	nativeMem   = kind{[]corev1.ResourceName{corev1.ResourceMemory}, false}
)

// IsBatch reports whether a resource is one of batch work, by today's names or
// those of before.
func IsBatch(name corev1.ResourceName) bool {
	return batchCPU.has(name) || batchMemory.has(name)
}

// BatchNames are all names under which batch work asks for something.
func BatchNames() []corev1.ResourceName { return slices.Concat(batchCPU.names, batchMemory.names) }

func (k kind) has(name corev1.ResourceName) bool {
	for _, n := range k.names {
		if n == name {
			return true
		}
	}
	return false
}

// of is the amount in a list, in thousandths of a CPU or in bytes. What is
// below 0 is none.
func (k kind) of(list corev1.ResourceList) node.Maybe[int64] {
	for _, name := range k.names {
		q, asked := list[name]
		if !asked || q.Sign() < 0 {
			continue
		}
		if name == corev1.ResourceCPU {
			return node.Some(q.MilliValue())
		}
		return node.Some(q.Value())
	}
	return node.Maybe[int64]{}
}

// An Amounts is what a pod or container asks for of CPU and memory.
type Amounts struct {
	CPURequest, CPULimit       node.Maybe[unit.MilliCPU]
	MemoryRequest, MemoryLimit node.Maybe[unit.Bytes]
}

// amountsOf are the amounts of a container. What asks for a limit and no request
// asks for as much, as the API server fills it in.
func amountsOf(r corev1.ResourceRequirements, cpu, memory kind) Amounts {
	var a Amounts
	a.CPULimit = as[unit.MilliCPU](positive(cpu.of(r.Limits)))
	a.MemoryLimit = as[unit.Bytes](positive(memory.of(r.Limits)))
	a.CPURequest, a.MemoryRequest = as[unit.MilliCPU](cpu.of(r.Requests)), as[unit.Bytes](memory.of(r.Requests))
	if !a.CPURequest.Known() {
		a.CPURequest = a.CPULimit
	}
	if !a.MemoryRequest.Known() {
		a.MemoryRequest = a.MemoryLimit
	}
	return a
}

// positive drops a limit of 0, which for the kubelet is none.
func positive(m node.Maybe[int64]) node.Maybe[int64] {
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

// Native is what a pod asks for of cpu and memory, as the kubelet counts
// (podSum).
func Native(p *corev1.Pod) Amounts {
	a := podSum(p, nativeCPU, nativeMem, nil, podOverhead(p))
	if r := p.Spec.Resources; r != nil { // of the pod as a whole: these go first
		whole := amountsOf(*r, nativeCPU, nativeMem)
		over := podOverhead(p)
		a.CPURequest, a.CPULimit = first(plusKnown(whole.CPURequest, over.CPURequest), a.CPURequest), first(plusKnown(whole.CPULimit, over.CPURequest), a.CPULimit)
		a.MemoryRequest = first(plusKnown(whole.MemoryRequest, over.MemoryRequest), a.MemoryRequest)
		a.MemoryLimit = first(plusKnown(whole.MemoryLimit, over.MemoryRequest), a.MemoryLimit)
	}
	return a
}

// Batch is what a pod asks for of the batch resources, counted in the same way.
// A container whose spec has none of them has those of the annotation
// extended-resource-spec.
func Batch(p *corev1.Pod) Amounts {
	said, _ := Extended(p)
	return podSum(p, batchCPU, batchMemory, said, podOverhead(p))
}

// Requested is what a pod requests of the batch resources as the kubelet counts
// that admits it: by their names in node.status, which the older ones and the
// annotation extended-resource-spec are not, and with an overhead under these
// names only (k8s.io/component-helpers/resource: PodRequests).
func Requested(p *corev1.Pod) (unit.MilliCPU, unit.Bytes) {
	cpu, memory := kind{[]corev1.ResourceName{BatchCPU}, true}, kind{[]corev1.ResourceName{BatchMemory}, false}
	a := podSum(p, cpu, memory, nil, amountsOf(corev1.ResourceRequirements{Requests: p.Spec.Overhead}, cpu, memory))
	return a.CPURequest.Or(0), a.MemoryRequest.Or(0)
}

// Mid is what a pod asks for of the mid resources.
func Mid(p *corev1.Pod) Amounts { return podSum(p, midCPU, midMemory, nil, podOverhead(p)) }

// podSum adds up the containers of a pod. Init containers run one after the
// other before the others, so the largest of them counts if it is more than
// those together; but those that go on running (restartPolicy Always, "sidecars")
// add to all that start after them (KEP-753). The overhead of the pod comes on
// top. A limit counts only if every container has one: one without is bounded by
// nothing, and so is the pod (k8s.io/kubernetes/pkg/kubelet/cm:
// ResourceConfigForPod).
func podSum(p *corev1.Pod, cpu, memory kind, said map[string]corev1.ResourceRequirements, over Amounts) Amounts {
	var each []Amounts
	var init []bool
	for _, c := range p.Spec.InitContainers {
		each = append(each, containerSum(c, cpu, memory, said))
		init = append(init, c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways)
	}
	for _, c := range p.Spec.Containers {
		each = append(each, containerSum(c, cpu, memory, said))
		init = append(init, false)
	}
	return Amounts{
		CPURequest:    sum(each, init, false, over.CPURequest, func(a Amounts) node.Maybe[unit.MilliCPU] { return a.CPURequest }),
		CPULimit:      sum(each, init, true, over.CPURequest, func(a Amounts) node.Maybe[unit.MilliCPU] { return a.CPULimit }),
		MemoryRequest: sum(each, init, false, over.MemoryRequest, func(a Amounts) node.Maybe[unit.Bytes] { return a.MemoryRequest }),
		MemoryLimit:   sum(each, init, true, over.MemoryRequest, func(a Amounts) node.Maybe[unit.Bytes] { return a.MemoryLimit }),
	}
}

// containerSum are the amounts of one container.
func containerSum(c corev1.Container, cpu, memory kind, said map[string]corev1.ResourceRequirements) Amounts {
	if a := amountsOf(c.Resources, cpu, memory); a != (Amounts{}) {
		return a
	}
	return amountsOf(said[c.Name], cpu, memory)
}

// podOverhead is what the runtime itself takes for the pod (spec.overhead), in
// the pod's own cgroup. It has the native names in every pod: that is how the
// API server wants it, and how its RuntimeClass says it.
func podOverhead(p *corev1.Pod) Amounts {
	return amountsOf(corev1.ResourceRequirements{Requests: p.Spec.Overhead}, nativeCPU, nativeMem)
}

// sum adds up one amount of the containers, in the order in which they start.
// With all, each must have it.
func sum[T ~int64](each []Amounts, init []bool, all bool, over node.Maybe[T], of func(Amounts) node.Maybe[T]) node.Maybe[T] {
	var running, most T // those that go on, and the most at any time
	some := false
	for i, a := range each {
		v, known := of(a).Value()
		if !known && all {
			return node.Maybe[T]{}
		}
		some = some || known
		if init[i] {
			most = max(most, plus(running, v))
		} else {
			running = plus(running, v)
		}
	}
	if !some {
		return node.Maybe[T]{}
	}
	return node.Some(plus(max(running, most), over.Or(0)))
}

// plus adds amounts that are not below 0, up to the most that there is.
func plus[T ~int64](a, b T) T {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func plusKnown[T ~int64](a, b node.Maybe[T]) node.Maybe[T] {
	if v, known := a.Value(); known {
		return node.Some(plus(v, b.Or(0)))
	}
	return a
}

func first[T any](a, b node.Maybe[T]) node.Maybe[T] {
	if a.Known() {
		return a
	}
	return b
}

// Weight is the share of contended CPU that a request stands for: 1024 shares
// for a CPU, as the kubelet has it.
func Weight(request unit.MilliCPU) unit.Weight {
	return unit.WeightOfShares(int64(Shares(request)))
}

// CPUQuantity and MemoryQuantity print amounts as node.status and pods hold
// them under the batch names.
func CPUQuantity(m unit.MilliCPU) resource.Quantity {
	return *resource.NewQuantity(int64(m), resource.DecimalSI)
}

// MemoryQuantity is an amount of memory in bytes.
func MemoryQuantity(b unit.Bytes) resource.Quantity {
	return *resource.NewQuantity(int64(b), resource.BinarySI)
}
