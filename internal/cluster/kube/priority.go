package kube

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// A PriorityClass is one of the four priority classes of Koordinator. Each
// class is a range of Kubernetes priorities.
type PriorityClass string

// The priority classes.
const (
	PriorityProd  PriorityClass = "koord-prod"
	PriorityMid   PriorityClass = "koord-mid"
	PriorityBatch PriorityClass = "koord-batch"
	PriorityFree  PriorityClass = "koord-free"
)

// PriorityClasses lists the priority classes from the highest to the lowest.
var PriorityClasses = []PriorityClass{PriorityProd, PriorityMid, PriorityBatch, PriorityFree}

// A Band is the range of priorities of a class. Default is the priority of a
// pod that has the class but no priority.
type Band struct{ Lowest, Default, Highest int32 }

// Bands are the ranges of the classes. A priority outside these ranges has no class.
var Bands = map[PriorityClass]Band{
	PriorityProd:  {9000, 9500, 9999},
	PriorityMid:   {7000, 7500, 7999},
	PriorityBatch: {5000, 5500, 5999},
	PriorityFree:  {3000, 3500, 3999},
}

// Priority returns the priority class in the label of a pod. Without the label,
// it returns the class to which the pod's priority belongs. It returns "" if
// the pod has neither.
func Priority(p *corev1.Pod) PriorityClass {
	if word, labelled := p.Labels[LabelPriorityClass]; labelled {
		if _, known := Bands[PriorityClass(word)]; known {
			return PriorityClass(word)
		}
	}
	return PriorityOfNumber(p)
}

// PriorityOfNumber returns the priority class to which the pod's priority
// belongs, whatever its label says. Schedulers order and preempt pods by this
// number. PriorityOfNumber returns "" if the pod has none, or one outside Bands.
func PriorityOfNumber(p *corev1.Pod) PriorityClass {
	if p.Spec.Priority == nil {
		return ""
	}
	for class, band := range Bands {
		if v := *p.Spec.Priority; v >= band.Lowest && v <= band.Highest {
			return class
		}
	}
	return ""
}

// PriorityWithDefault returns the result of Priority. If that is "", it returns
// batch for BE pods and prod for all others.
func PriorityWithDefault(p *corev1.Pod) PriorityClass {
	if c := Priority(p); c != "" {
		return c
	}
	if ClassWithDefault(p) == node.BE {
		return PriorityBatch
	}
	return PriorityProd
}

// SubPriority returns the number in a label that orders pods of the same
// priority. Without the label, the number is the priority of the pod, as in
// Koordinator. Pods with the label and without it are compared by these
// numbers.
func SubPriority(p *corev1.Pod) (int, []Fault) {
	if _, labelled := p.Labels[LabelSubPriority]; !labelled {
		return priorityOf(p), nil
	}
	return whole32(p.Labels, LabelSubPriority)
}

// EvictionPriority returns the number in an annotation that orders pods for
// eviction: the pod with the lower number is evicted first, whatever the
// priorities of the pods. Without the annotation, the number is 0.
func EvictionPriority(p *corev1.Pod) (int, []Fault) {
	return whole32(p.Annotations, AnnotationEvictionPriority)
}

// whole32 reads an int32, the type of priorities in the API.
func whole32(of map[string]string, key string) (int, []Fault) {
	text, given := of[key]
	if !given {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, faultOf(key, "%.64q: want a whole number from -2147483648 to 2147483647", text)
	}
	return int(n), nil
}

// priorityOf returns the priority of a pod. For a pod without a priority, it
// returns the default priority of the class in the pod's label.
func priorityOf(p *corev1.Pod) int {
	if p.Spec.Priority != nil {
		return int(*p.Spec.Priority)
	}
	return int(Bands[Priority(p)].Default)
}

// defaultPriority returns the default priority of a pod's class if the pod has
// the priority 0. The API server gives the priority 0 to each pod without a
// priority class. For pods with another priority, the result is 0.
func defaultPriority(p *corev1.Pod) int {
	if priorityOf(p) != 0 {
		return 0
	}
	return int(Bands[PriorityWithDefault(p)].Default)
}
