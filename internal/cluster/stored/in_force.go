// Package stored reads what the API server stores about a pod besides the words
// of its author: the resources in force, the object that made it, and which
// fields others than its author have written.
package stored

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PendingResize returns the condition of a pod whose new resources its kubelet
// has not accepted yet (PodResizePending), or nil.
func PendingResize(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// InForce returns a pod with the resources that are in force. While a resize is
// pending, these are in the status of the pod and of its containers, and the
// spec has the new ones. Without a pending resize, InForce returns p. It does
// not change p.
func InForce(p *corev1.Pod) *corev1.Pod {
	if PendingResize(p) == nil {
		return p
	}
	next := *p
	next.Spec.InitContainers = inForce(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	next.Spec.Containers = inForce(p.Spec.Containers, p.Status.ContainerStatuses)
	next.Spec.Resources = wholeInForce(p)
	return &next
}

// wholeInForce returns the resources of the pod as a whole, with the requests
// that the kubelet has allocated. The allocated requests include the overhead of
// the pod, and its spec does not. The limits in the status are of no use: the
// kubelet reads them from files that Tenon writes, such as cpu.max. For a
// Guaranteed pod, they equal the requests. For other pods, the new limits remain.
func wholeInForce(p *corev1.Pod) *corev1.ResourceRequirements {
	if p.Spec.Resources == nil {
		return nil
	}
	whole := p.Spec.Resources.DeepCopy()
	for name := range whole.Requests {
		q, allocated := p.Status.AllocatedResources[name]
		if !allocated {
			continue
		}
		q = q.DeepCopy()
		q.Sub(p.Spec.Overhead[name])
		whole.Requests[name] = q
		if _, limited := whole.Limits[name]; limited && p.Status.QOSClass == corev1.PodQOSGuaranteed {
			whole.Limits[name] = q.DeepCopy()
		}
	}
	return whole
}

// inForce returns containers with the resources in their statuses.
func inForce(containers []corev1.Container, statuses []corev1.ContainerStatus) []corev1.Container {
	all := slices.Clone(containers)
	for i := range all {
		at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == all[i].Name })
		if at >= 0 && statuses[at].Resources != nil {
			all[i].Resources.Requests, all[i].Resources.Limits = statuses[at].Resources.Requests, statuses[at].Resources.Limits
		}
	}
	return all
}
