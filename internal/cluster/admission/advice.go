package admission

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/config/spelling"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// labelKeys and annotationKeys are the keys that the owner of a pod may write.
var (
	labelKeys      = []string{kube.LabelQOSClass, kube.LabelPriorityClass, kube.LabelSubPriority, kube.LabelIgnore}
	annotationKeys = []string{
		kube.AnnotationCPUBurst, kube.AnnotationCPUQOS, kube.AnnotationMemoryQOS, kube.AnnotationBlkIOQOS, kube.AnnotationNetworkQOS,
		kube.AnnotationEvictionPolicy, kube.AnnotationEvictionPriority, kube.AnnotationResctrl, kube.AnnotationResourceSpec,
		kube.AnnotationNUMASpec, kube.AnnotationACKNUMASpec, kube.AnnotationCPUSetScheduler, kube.AnnotationCPUPolicy,
		kube.AnnotationObjective,
	}
)

// Advice returns what the owner of a pod probably did not mean, and what the
// node cannot see as a fault: misspelt keys, and keys without an effect.
func Advice(p *corev1.Pod) []kube.Fault {
	all := slices.Concat(misspelt(p.Labels, "label", labelKeys, annotationKeys), misspelt(p.Annotations, "annotation", annotationKeys, labelKeys))
	return slices.Concat(all, inert(p), weightless(p))
}

func advise(key, problem string, a ...any) []kube.Fault {
	return []kube.Fault{{Key: key, Fault: config.Fault{Problem: fmt.Sprintf(problem, a...)}, Inert: true}}
}

// misspelt looks at the keys of the labels or annotations of a pod. Keys of the
// other map have no effect in this one. kube.Faults reports the class as an
// annotation.
func misspelt(of map[string]string, what string, known, others []string) []kube.Fault {
	other := map[string]string{"label": "an annotation", "annotation": "a label"}[what]
	var all []kube.Fault
	for _, key := range slices.Sorted(maps.Keys(of)) {
		switch {
		case slices.Contains(known, key) || key == kube.LabelQOSClass:
		case slices.Contains(others, key):
			all = append(all, advise(key, "has no effect as %s: want it as %s", map[string]string{"label": "a label", "annotation": "an annotation"}[what], other)...)
		default:
			if meant := spelling.Typo(key, slices.Concat(known, others)); meant != "" {
				all = append(all, advise(key, "unknown %s: did you mean %s?", what, meant)...)
			}
		}
	}
	return all
}

// inert looks for annotations about CPUs that have another effect than their
// words say, because of the class or the resources of the pod.
func inert(p *corev1.Pod) []kube.Fault {
	d, demands, _ := kube.DemandOf(p)
	class, word := kube.Class(p), p.Annotations[kube.AnnotationCPUSetScheduler]
	owns, ack := class == node.LSE || class == node.LSR, word == "true" || word == "required"
	spec, _ := kube.ResourceSpecOf(p)
	switch {
	case !demands && !owns && !ack && asksForCores(spec):
		return advise(kube.AnnotationResourceSpec, `has no effect: it says which CPUs a pod gets, and this pod asks for none: want class LSR or LSE, or cpuset-scheduler: "true"`)
	case demands && owns && ack && d.Policy == cpus.Pool && p.Annotations[kube.AnnotationCPUPolicy] == kube.StaticBurst:
		return advise(kube.AnnotationCPUPolicy, "gives the pod a pool, which it shares, and no CPUs of its own as class %s does: leave out one of them", class)
	case demands && owns && ack && d.Policy == cpus.Exclusive:
		if limits := limitsOf(p); limits > 0 && limits != unit.CPUs(d.CPUs) {
			return advise(kube.AnnotationCPUSetScheduler, "has no effect: a pod of class %s owns as many CPUs as it requests (%d), and the CPU limits of its containers add up to %v: want limits that add up to the request, or leave it out", class, d.CPUs, limits)
		}
		if c := partOf(p); c != nil {
			return advise(kube.AnnotationCPUSetScheduler, "has no effect: a pod of class %s owns as many CPUs as it requests (%d), and container %.64q has the CPU limit %v: want whole CPUs in each container, or leave it out", class, d.CPUs, c.Name, quantity.CPU(c.Resources.Limits[corev1.ResourceCPU], unit.Up))
		}
	}
	return nil
}

// weightless looks for a service that requests no CPU. The kubelet gives it the least CPU
// weight, as it does to best-effort work, and Tenon changes no weight of a service.
func weightless(p *corev1.Pod) []kube.Fault {
	if kube.Class(p) != node.LS || kube.Native(p).CPURequest.Or(0) > 0 {
		return nil
	}
	return advise(kube.LabelQOSClass, "the pod requests no CPU, so its CPU weight is the least one, as that of best-effort work: want requests.cpu for a service")
}

// asksForCores reports whether resource-spec says which CPUs a pod should get.
func asksForCores(s kube.ResourceSpec) bool {
	says := func(word, none string) bool { return word != "" && word != none }
	return says(s.RequiredCPUBindPolicy, "Default") || says(s.PreferredCPUBindPolicy, "Default") || says(s.PreferredCPUExclusivePolicy, "None")
}

// limitsOf adds up the CPU limits of the containers of a pod.
func limitsOf(p *corev1.Pod) unit.MilliCPU {
	var sum unit.MilliCPU
	for i := range p.Spec.Containers {
		if q, limited := p.Spec.Containers[i].Resources.Limits[corev1.ResourceCPU]; limited && q.Sign() > 0 && q.Cmp(maxCPUs) <= 0 {
			sum += quantity.CPU(q, unit.Up)
		}
	}
	return sum
}

// partOf returns the first container of a pod whose CPU limit is not a whole
// number, or nil.
func partOf(p *corev1.Pod) *corev1.Container {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if q := c.Resources.Limits[corev1.ResourceCPU]; q.Cmp(maxCPUs) <= 0 && quantity.CPU(q, unit.Up)%unit.CPUs(1) != 0 {
			return c
		}
	}
	return nil
}
