package kube

import (
	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// systemCritical is the lowest priority of system-critical pods, without which
// the node or the cluster does not work (k8s.io/kubernetes/pkg/apis/scheduling:
// SystemCriticalPriority).
const systemCritical = 2000000000

// SystemNamespace is the namespace of the components of Kubernetes, in which
// only administrators create pods.
const SystemNamespace = "kube-system"

// Class returns the class in the label of a pod. Without the label, it returns
// the class in the annotation that ACK used before 0.8.0. It returns "" without
// both, for an empty label, and for a value that is not a class. The function
// Faults reports such a value.
func Class(p *corev1.Pod) node.Class {
	if word, labelled := p.Labels[LabelQOSClass]; labelled {
		return classOf(word)
	}
	return classOf(p.Annotations[AnnotationACKQOSClass])
}

// ClassWithDefault returns Class. If Class is empty, the Kubernetes QoS class
// decides, as on ACK: a Guaranteed or Burstable pod is LS, and a BestEffort pod
// is BE. But a system-critical BestEffort pod must not give way to other pods. In
// kube-system, such as kube-proxy, it is SYSTEM. Elsewhere it is LS, because
// every user may give a pod this priority, and a SYSTEM pod runs on the own CPUs
// of other pods.
func ClassWithDefault(p *corev1.Pod) node.Class {
	if c := Class(p); c != "" {
		return c
	}
	return withoutClass(p, QOSClass(p))
}

// withoutClass returns the default class of a pod. kube is the pod's QoS class in Kubernetes.
func withoutClass(p *corev1.Pod, kube corev1.PodQOSClass) node.Class {
	switch {
	case kube != corev1.PodQOSBestEffort:
		return node.LS
	case p.Spec.Priority == nil || *p.Spec.Priority < systemCritical:
		return node.BE
	case p.Namespace == SystemNamespace:
		return node.System
	}
	return node.LS
}

// classAndRule returns the class of a pod, and the label, annotation or rule
// that determines the class.
func classAndRule(p *corev1.Pod) (node.Class, string) {
	if c := Class(p); c != "" {
		if _, labelled := p.Labels[LabelQOSClass]; labelled {
			return c, LabelQOSClass + "=" + string(c)
		}
		return c, AnnotationACKQOSClass + "=" + string(c)
	}
	kube := QOSClass(p)
	c, rule := withoutClass(p, kube), "Kubernetes QoS class "+string(kube)
	if kube == corev1.PodQOSBestEffort && c != node.BE {
		rule += ", system-critical priority"
	}
	return c, rule
}

func classOf(word string) node.Class {
	for _, c := range node.Classes {
		if string(c) == word {
			return c
		}
	}
	return ""
}

// QOSClass returns the Kubernetes QoS class of a pod, which determines where
// the kubelet places the pod's cgroup. It returns the class in the status of
// the pod. Without a status, it computes the class by the rules of the API
// server, from cpu and memory (k8s.io/kubernetes/pkg/apis/core/v1/helper/qos).
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	compute := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	all := make([]corev1.ResourceRequirements, 0, len(p.Spec.Containers)+len(p.Spec.InitContainers))
	if r := p.Spec.Resources; r != nil && (has(r.Requests, compute) || has(r.Limits, compute)) {
		all = append(all, *r) // amounts of the pod replace those of its containers
	} else {
		for _, c := range p.Spec.Containers {
			all = append(all, c.Resources)
		}
		for _, c := range p.Spec.InitContainers {
			all = append(all, c.Resources)
		}
	}
	asks, guaranteed := false, true
	for _, r := range all {
		asks = asks || has(r.Requests, compute) || has(r.Limits, compute)
		for _, name := range compute {
			limit, limited := r.Limits[name]
			request, requested := r.Requests[name]
			if !requested {
				request = limit // the API server fills in this default
			}
			guaranteed = guaranteed && limited && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case !asks:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func has(list corev1.ResourceList, names []corev1.ResourceName) bool {
	for _, n := range names {
		if q, is := list[n]; is && !q.IsZero() {
			return true
		}
	}
	return false
}
