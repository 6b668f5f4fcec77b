// Package kube holds the words of the protocol between Kubernetes and Tenon:
// labels, annotations and resources of a pod, where its cgroups are, and what it
// is as a workload. The words are Koordinator's and ACK's, so that manifests
// written for those work unchanged. Everything here is a pure function over the
// values of the Kubernetes API: it asks nobody and waits for nothing.
package kube

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/config"
)

// The labels of a pod.
const (
	// LabelQOSClass names the class: LSE, LSR, LS, BE or SYSTEM.
	LabelQOSClass = "koordinator.sh/qosClass"
	// LabelPriorityClass names the priority class where that of the pod does not.
	LabelPriorityClass = "koordinator.sh/priority-class"
	// LabelSubPriority orders pods of one priority: a whole number.
	LabelSubPriority = "koordinator.sh/priority"
)

// The annotations of a pod.
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

	// Those of ACK before 0.8.0.
	AnnotationACKQOSClass  = "alibabacloud.com/qosClass"
	AnnotationACKCPUBurst  = "alibabacloud.com/cpuBurst"
	AnnotationACKMemoryQOS = "alibabacloud.com/memoryQOS"

	// Those of the kubelet: the first names the pod of a file (a static pod) for
	// which a pod of the API server stands, the second says where the kubelet has
	// a pod from.
	annotationMirror = corev1.MirrorPodAnnotationKey
	annotationHash   = "kubernetes.io/config.hash"
	annotationSource = "kubernetes.io/config.source"
)

// A Fault is one thing wrong with a label or annotation of a pod. The value as a
// whole then does not count; all else of the pod does.
type Fault struct {
	// Key is the label or annotation.
	Key string
	config.Fault
	// Inert: it can be read, and nothing acts on it; the rest of the value counts.
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

// inert is a field that can be read and on which nothing acts.
func inert(key, field, problem string) []Fault {
	return []Fault{{Key: key, Fault: config.Fault{Field: field, Problem: problem}, Inert: true}}
}

// wordFault is what is wrong with a word that is not one of those wanted.
func wordFault(key, field, word string, want []string) []Fault {
	if slices.Contains(want, word) {
		return nil
	}
	words := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return w == "" })
	return fieldFault(key, field, fmt.Sprintf("%.64q: want one of %s", word, strings.Join(words, ", ")))
}

// NameOf is how sentences name a pod: "namespace/name".
func NameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// Ended reports whether all containers of a pod have ended for good.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
