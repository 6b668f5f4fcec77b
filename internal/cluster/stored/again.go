package stored

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

// Exists reports whether an API server stores a pod: it has given the pod its
// UID or a version.
func Exists(p *corev1.Pod) bool { return p.UID != "" || p.ResourceVersion != "" }

// Again returns a pod that exists as its author could create it again: without
// what the API server, controllers, the scheduler and the kubelet have written.
// The changes of webhooks stay; profiles act once, however often the API server
// calls.
func Again(p *corev1.Pod) *corev1.Pod {
	next := p.DeepCopy()
	next.ObjectMeta = metav1.ObjectMeta{Name: next.Name, GenerateName: next.GenerateName, Namespace: next.Namespace, Labels: next.Labels, Annotations: next.Annotations}
	for _, key := range append([]string{corev1.LastAppliedConfigAnnotation}, kube.Results...) {
		delete(next.Annotations, key)
	}
	next.Spec.NodeName, next.Spec.EphemeralContainers = "", nil
	next.Status = corev1.PodStatus{}
	return next
}
