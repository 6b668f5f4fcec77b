// Package kube defines how Kubernetes objects describe work to Tenon. It
// defines the labels, annotations and resources of a pod, the paths of its
// cgroups, and the workload that Tenon makes from the pod. The names are those
// of Koordinator and ACK, so that their manifests work unchanged. All functions
// are pure functions over values of the Kubernetes API.
package kube

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/config"
)

// Labels of a pod.
const (
	// LabelQOSClass names the class: LSE, LSR, LS, BE or SYSTEM.
	LabelQOSClass = "koordinator.sh/qosClass"
	// LabelPriorityClass names the priority class. Without this label, the
	// priority of the pod determines the class.
	LabelPriorityClass = "koordinator.sh/priority-class"
	// LabelSubPriority orders pods of the same priority. The value is a whole number.
	LabelSubPriority = "koordinator.sh/priority"
)

// Annotations of a pod.
const (
	AnnotationCPUBurst         = "koordinator.sh/cpuBurst"
	AnnotationCPUQOS           = "koordinator.sh/cpuQOS"
	AnnotationMemoryQOS        = "koordinator.sh/memoryQOS"
	AnnotationBlkIOQOS         = "koordinator.sh/blkioQOS"
	AnnotationNetworkQOS       = "koordinator.sh/networkQOS"
	AnnotationEvictionPolicy   = "koordinator.sh/eviction-policy"
	AnnotationEvictionPriority = "koordinator.sh/eviction-priority"
	AnnotationExtended         = "node.koordinator.sh/extended-resource-spec"
	AnnotationResctrl          = "node.koordinator.sh/resctrl"
	AnnotationResourceSpec     = "scheduling.koordinator.sh/resource-spec"
	AnnotationResourceStatus   = "scheduling.koordinator.sh/resource-status"

	// Annotations of ACK before 0.8.0.
	AnnotationACKQOSClass  = "alibabacloud.com/qosClass"
	AnnotationACKCPUBurst  = "alibabacloud.com/cpuBurst"
	AnnotationACKMemoryQOS = "alibabacloud.com/memoryQOS"

	// AnnotationObjective states the objective of a pod. {} says that it has none.
	AnnotationObjective = "tenon.sh/objective"

	// These annotations come from the kubelet. annotationMirror is on a mirror pod
	// and identifies its static pod. annotationSource names the source from which
	// the kubelet got the pod.
	annotationMirror = corev1.MirrorPodAnnotationKey
	annotationHash   = "kubernetes.io/config.hash"
	annotationSource = "kubernetes.io/config.source"
)

// A Fault is an error in a label or annotation of a pod. Tenon then ignores the
// whole value, but not the other labels and annotations.
type Fault struct {
	// Key is the label or annotation.
	Key string
	config.Fault
	// Inert means that Tenon can read the field but ignores it, or that the rest
	// of the pod changes its effect. All other fields of the value have their
	// effect.
	Inert bool
}

// String prints `koordinator.sh/cpuBurst: cpuBurstPercent: 0: want a whole
// number from 1 to 10000`.
func (f Fault) String() string { return f.Key + ": " + f.Fault.String() }

func faultsOf(key string, found []config.Fault) []Fault {
	var faults []Fault
	for _, f := range found {
		faults = append(faults, Fault{Key: key, Fault: f})
	}
	return faults
}

func faultOf(key, problem string, a ...any) []Fault {
	return fieldFault(key, "", fmt.Sprintf(problem, a...))
}

func fieldFault(key, field, problem string) []Fault {
	return []Fault{{Key: key, Fault: config.Fault{Field: field, Problem: problem}}}
}

// inertFault returns the fault for a field that Tenon can read but ignores.
func inertFault(key, field, problem string) []Fault {
	return []Fault{{Key: key, Fault: config.Fault{Field: field, Problem: problem}, Inert: true}}
}

// wordFault returns a fault if word is not in the list want, and otherwise nil.
func wordFault(key, field, word string, want []string) []Fault {
	if slices.Contains(want, word) {
		return nil
	}
	words := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return w == "" })
	if len(words) == 1 {
		return fieldFault(key, field, fmt.Sprintf("%.64q: want %s", word, words[0]))
	}
	return fieldFault(key, field, fmt.Sprintf("%.64q: want one of %s", word, strings.Join(words, ", ")))
}

// NameOf returns the name of a pod for messages: "namespace/name".
func NameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// HasEnded reports whether all containers of a pod have ended and will not
// start again.
func HasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
