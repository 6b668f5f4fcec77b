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
// pending, these are in the status of its containers, and the spec has the new
// ones. Without a pending resize, InForce returns p. It does not change p.
func InForce(p *corev1.Pod) *corev1.Pod {
	if PendingResize(p) == nil {
		return p
	}
	next := *p
	next.Spec.InitContainers = inForce(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	next.Spec.Containers = inForce(p.Spec.Containers, p.Status.ContainerStatuses)
	return &next
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
