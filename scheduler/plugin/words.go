package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/place"
)

// asking are the annotations with which a pod may demand CPUs.
var asking = [...]string{
	kube.AnnotationCPUSetScheduler, kube.AnnotationResourceSpec, kube.AnnotationNUMASpec, kube.AnnotationACKNUMASpec, kube.AnnotationACKQOSClass,
}

// demandOf returns the CPUs that a pod demands from its node; false: it demands
// none. Most pods demand none, so demandOf first looks only at a few
// annotations.
func demandOf(p *corev1.Pod) (place.Demand, bool) {
	_, maybe := p.Labels[kube.LabelQOSClass]
	for i := 0; i < len(asking) && !maybe && len(p.Annotations) > 0; i++ {
		_, maybe = p.Annotations[asking[i]]
	}
	if !maybe {
		return place.Demand{}, false
	}
	d, asks, _ := kube.DemandOf(p)
	return d, asks
}

// contractOf returns the choice for a bound pod. It is zero if the pod has
// none. In that case, the node chooses the CPUs in the same way as this
// scheduler.
func contractOf(p *corev1.Pod) place.Contract {
	c, given, _ := kube.ContractOf(p)
	if !given {
		return place.Contract{}
	}
	return c
}

// equal reports whether the CPUs of a node are equal in two reports.
func equal(a, b *v1alpha1.CPUs) bool { return equality.Semantic.DeepEqual(a, b) }

// learnt converts the CPUs of a report for the ledger.
func learnt(c *v1alpha1.CPUs) (place.Report, error) { return cpureport.Read(c) }
