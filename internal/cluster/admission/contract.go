package admission

import (
	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

// results are the annotations that only the scheduler writes, together with the
// binding of a pod to its node.
var results = []string{kube.AnnotationCPUSet, kube.AnnotationResourceStatus, kube.AnnotationCPUs}

// unforged removes results from a new pod. A manifest that was copied from a
// running pod has them.
func unforged(p *corev1.Pod, v *Verdict) {
	for _, key := range results {
		if _, given := p.Annotations[key]; given {
			delete(p.Annotations, key)
			v.warn("the annotation %s was removed: the scheduler writes it when it binds the pod to a node", key)
		}
	}
}

// scheduled gives a pod whose CPUs are chosen to the scheduler that chooses
// them. A pod that names another scheduler than the default one keeps it, and a
// pod that has a node needs none.
func scheduled(p *corev1.Pod, scheduler string) {
	if p.Spec.NodeName != "" || p.Spec.SchedulerName != "" && p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		return
	}
	if _, asks, _ := kube.DemandOf(p); asks {
		p.Spec.SchedulerName = scheduler
	}
}
