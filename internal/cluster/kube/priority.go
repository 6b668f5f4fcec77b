package kube

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// A PriorityClass is one of Koordinator's four: a band of the priorities of
// Kubernetes.
type PriorityClass string

// The priority classes.
const (
	PriorityProd  PriorityClass = "koord-prod"
	PriorityMid   PriorityClass = "koord-mid"
	PriorityBatch PriorityClass = "koord-batch"
	PriorityFree  PriorityClass = "koord-free"
)

// PriorityClasses lists them from the highest down.
var PriorityClasses = []PriorityClass{PriorityProd, PriorityMid, PriorityBatch, PriorityFree}

// A Band is the priorities of a class. Default is that of pods that are moved
// into the class without a priority of their own.
type Band struct{ Lowest, Default, Highest int32 }

// Bands are the bands of the classes; outside of them a pod has no class.
var Bands = map[PriorityClass]Band{
	PriorityProd:  {9000, 9500, 9999},
	PriorityMid:   {7000, 7500, 7999},
	PriorityBatch: {5000, 5500, 5999},
	PriorityFree:  {3000, 3500, 3999},
}

// Priority is the priority class of a pod: by the label, or else by the band of
// its priority; empty if it has none.
func Priority(p *corev1.Pod) PriorityClass {
	if word, labelled := p.Labels[LabelPriorityClass]; labelled {
		if _, known := Bands[PriorityClass(word)]; known {
			return PriorityClass(word)
		}
	}
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

// PriorityWithDefault is Priority; without one, it is batch for best-effort work
// and prod for all other.
func PriorityWithDefault(p *corev1.Pod) PriorityClass {
	if c := Priority(p); c != "" {
		return c
	}
	if ClassWithDefault(p) == node.BE {
		return PriorityBatch
	}
	return PriorityProd
}

// SubPriority orders pods of one priority; 0 if nothing is said.
func SubPriority(p *corev1.Pod) (int, []Fault) { return whole32(p.Labels, LabelSubPriority) }

// EvictionPriority orders pods before their priority: the lower is evicted
// first; 0 if nothing is said.
func EvictionPriority(p *corev1.Pod) (int, []Fault) {
	return whole32(p.Annotations, AnnotationEvictionPriority)
}

// whole32 reads an int32, which is what the API has for priorities.
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

// priorityOf is the number by which a pod is ordered: its own, or where it has
// none that of the class which its label names.
func priorityOf(p *corev1.Pod) int {
	if p.Spec.Priority != nil {
		return int(*p.Spec.Priority)
	}
	return int(Bands[Priority(p)].Default)
}
