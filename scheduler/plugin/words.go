package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// demandAnnotations are the annotations in which a pod may demand CPUs.
var demandAnnotations = [...]string{
	kube.AnnotationCPUSetScheduler, kube.AnnotationResourceSpec, kube.AnnotationNUMASpec, kube.AnnotationACKNUMASpec, kube.AnnotationACKQOSClass,
}

// demandOf returns the CPUs that a pod demands from its node. It returns false
// if the pod demands none. This is frequent, so demandOf first checks only a
// few annotations.
func demandOf(p *corev1.Pod) (cpus.PodRequest, bool) {
	_, maybe := p.Labels[kube.LabelQOSClass]
	for i := 0; i < len(demandAnnotations) && !maybe && len(p.Annotations) > 0; i++ {
		_, maybe = p.Annotations[demandAnnotations[i]]
	}
	if !maybe {
		return cpus.PodRequest{}, false
	}
	d, asks, _ := kube.DemandOf(p)
	return d, asks
}

// uidOf returns the UID under which a pod is in the ledger. It is the one in the
// report of the pod's node.
func uidOf(p *corev1.Pod) place.UID { return place.UID(kube.UIDOnNode(p)) }

// equal reports whether two reports have the same CPUs of a node.
func equal(a, b *v1alpha1.CPUs) bool { return equality.Semantic.DeepEqual(a, b) }
