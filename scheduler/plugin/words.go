package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/place"
)

// asking are the annotations that may make a pod ask for CPUs.
var asking = [...]string{
	kube.AnnotationCPUSetScheduler, kube.AnnotationResourceSpec, kube.AnnotationNUMASpec, kube.AnnotationACKNUMASpec, kube.AnnotationACKQOSClass,
}

// demandOf returns what a pod asks of the CPUs of its node; false if it asks
// for none, which most pods do: it looks at a few words first.
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
// none: then its node chooses as this scheduler would.
func contractOf(p *corev1.Pod) place.Contract {
	c, given, _ := kube.ContractOf(p)
	if !given {
		return place.Contract{}
	}
	return c
}

// equal reports whether two reports say the same of the CPUs of a node.
func equal(a, b *v1alpha1.CPUs) bool { return equality.Semantic.DeepEqual(a, b) }

// learnt returns what the ledger learns from a report.
func learnt(c *v1alpha1.CPUs) (place.Report, error) { return cpureport.Read(c) }
