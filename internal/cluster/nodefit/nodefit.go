// Package nodefit says which nodes the node selector, the required affinity and the
// tolerations of a pod admit, by the code of kube-scheduler.
package nodefit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Excludes reports whether a pod may never run on a node as it is. If a taint keeps the
// pod away, Excludes returns the taint. pinned means that the pod names the node itself:
// then no scheduler looks at NoSchedule.
func Excludes(p *corev1.Pod, n *corev1.Node, pinned bool) (taint *corev1.Taint, excludes bool) {
	if match, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !match {
		return nil, true
	}
	taints := n.Spec.Taints
	if n.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	hard := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute || t.Effect == corev1.TaintEffectNoSchedule && !pinned
	}
	if t, bad := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, taints, p.Spec.Tolerations, hard, false); bad {
		return &t, true
	}
	return nil, false
}
