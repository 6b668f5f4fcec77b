package admission

import (
	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

// scaleUpDelay is the value of kube.AnnotationScaleUpDelay in batch pods: a year.
const scaleUpDelay = "8760h"

// delayScaleUp keeps cluster-autoscaler from adding a node for a pod that waits for
// batch resources: a new node has none until an agent runs there, and the resources are
// those that services leave idle. The author of the pod may have written another delay.
func delayScaleUp(p *corev1.Pod) {
	if _, given := p.Annotations[kube.AnnotationScaleUpDelay]; !given {
		set(&p.Annotations, map[string]string{kube.AnnotationScaleUpDelay: scaleUpDelay})
	}
}
