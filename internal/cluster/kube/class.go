package kube

import (
	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// systemCritical is the priority from which on the pods are the node's own or
// the cluster's (k8s.io/kubernetes/pkg/apis/scheduling: SystemCriticalPriority).
const systemCritical = 2000000000

// Class is the class that a pod's owner gave it, by the label, or else by the
// annotation of ACK before 0.8.0. It is empty if there is none, or a word that is
// no class: Faults says so. A label without a word
// is no class.
func Class(p *corev1.Pod) node.Class {
	if word, labelled := p.Labels[LabelQOSClass]; labelled {
		return classOf(word)
	}
	return classOf(p.Annotations[AnnotationACKQOSClass])
}

// ClassWithDefault is Class; without one, a pod is LS if it is Guaranteed or
// Burstable for Kubernetes, and BE if it is BestEffort, as on ACK. A BestEffort
// pod that the node or the cluster cannot do without (such as kube-proxy) is
// SYSTEM: nobody asked for it to give way.
func ClassWithDefault(p *corev1.Pod) node.Class {
	class, _ := classAndRule(p)
	return class
}

// classAndRule also says what gave the pod its class.
func classAndRule(p *corev1.Pod) (node.Class, string) {
	if c := Class(p); c != "" {
		if _, labelled := p.Labels[LabelQOSClass]; labelled {
			return c, LabelQOSClass + "=" + string(c)
		}
		return c, AnnotationACKQOSClass + "=" + string(c)
	}
	kube := QOSClass(p)
	rule := "Kubernetes QoS class " + string(kube)
	switch {
	case kube != corev1.PodQOSBestEffort:
		return node.LS, rule
	case p.Spec.Priority != nil && *p.Spec.Priority >= systemCritical:
		return node.System, rule + ", system-critical priority"
	}
	return node.BE, rule
}

func classOf(word string) node.Class {
	for _, c := range node.Classes {
		if string(c) == word {
			return c
		}
	}
	return ""
}

// QOSClass is the class that Kubernetes gives a pod, by which the kubelet places
// its cgroup: as the status says, or worked out as the API server does
// (k8s.io/kubernetes/pkg/apis/core/v1/helper/qos). Only cpu and memory count.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	compute := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	all := make([]corev1.ResourceRequirements, 0, len(p.Spec.Containers)+len(p.Spec.InitContainers))
	if r := p.Spec.Resources; r != nil && (has(r.Requests, compute) || has(r.Limits, compute)) {
		all = append(all, *r) // then those of the containers do not matter
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
				request = limit // as the API server fills it in
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
