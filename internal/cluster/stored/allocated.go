// Package stored reads what the API server stores about a pod besides the words
// of its author: the resources that its kubelet has allocated, the object that
// made it, and which fields others than its author have written.
package stored

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Allocated returns a pod with the resources that its kubelet has allocated.
// While a resize is pending (condition PodResizePending), the node acts on
// these, and not on those of the spec. Without a pending resize, Allocated
// returns p. It does not change p.
func Allocated(p *corev1.Pod) *corev1.Pod {
	if !isResizePending(p) {
		return p
	}
	next := *p
	next.Spec.InitContainers = allocated(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	next.Spec.Containers = allocated(p.Spec.Containers, p.Status.ContainerStatuses)
	return &next
}

func isResizePending(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue
	})
}

// allocated returns containers with the resources in their statuses.
func allocated(containers []corev1.Container, statuses []corev1.ContainerStatus) []corev1.Container {
	all := slices.Clone(containers)
	for i := range all {
		at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == all[i].Name })
		if at < 0 {
			continue
		}
		if r := statuses[at].Resources; r != nil {
			all[i].Resources.Requests, all[i].Resources.Limits = r.Requests, r.Limits
		}
		if r := statuses[at].AllocatedResources; r != nil {
			all[i].Resources.Requests = r
		}
	}
	return all
}
