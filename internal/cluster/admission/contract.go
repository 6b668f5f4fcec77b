package admission

import (
	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

// deleteForged deletes the annotations in kube.Results from a new pod. A new pod has
// them if its manifest was copied from a running pod.
func deleteForged(p *corev1.Pod, v *Verdict) {
	for _, key := range kube.Results {
		if _, given := p.Annotations[key]; given {
			delete(p.Annotations, key)
			v.warn(Removed, "", "the annotation %s was removed: the scheduler writes it when it binds the pod to a node", key)
		}
	}
}

// setScheduler sets the scheduler of a pod that demands CPUs to the scheduler
// that chooses CPUs. It does not change a pod that already has a node, or a pod
// with a scheduler other than the default one.
func setScheduler(p *corev1.Pod, scheduler string) {
	if p.Spec.NodeName != "" || p.Spec.SchedulerName != "" && p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		return
	}
	if _, asks, _ := kube.DemandOf(p); asks {
		p.Spec.SchedulerName = scheduler
	}
}
