package podpages

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/unit"
)

// pendingResize returns the condition of a pod whose new resources the kubelet
// has not allocated yet, or nil.
func pendingResize(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// resizeText describes the resize of a pod that the kubelet has not done. It
// returns "" if there is none.
func resizeText(p *corev1.Pod) string {
	c := pendingResize(p)
	if c == nil {
		return ""
	}
	verb := "has not yet done"
	switch c.Reason {
	case corev1.PodReasonDeferred:
		verb = "has deferred"
	case corev1.PodReasonInfeasible:
		verb = "refuses"
	}
	text := "the kubelet " + verb + " the resize"
	if request, asked := kube.Native(p).CPURequest.Value(); asked && request%unit.CPUs(1) == 0 {
		text += " to " + cpus(int(request/unit.CPUs(1)))
	} else if asked {
		text += fmt.Sprintf(" to %v CPU", request)
	}
	return text + after(": ", strings.TrimRight(c.Message, ". "))
}

// contractOf returns the CPUs that a scheduler chose for a pod on a node. It
// returns the zero Contract, by which the node chooses, if these are own CPUs of
// another pod in a newer report that lacks this pod.
func (c *Cluster) contractOf(p *corev1.Pod, n *nodeState) place.Contract {
	contract, chosen, _ := kube.ContractOf(p)
	if !chosen || n == nil || !n.reported || !n.Report.Status.Reported.After(boundAt(p).Time) {
		return contract
	}
	for _, h := range n.report.Held {
		if h.UID == place.UID(p.UID) {
			return contract
		}
	}
	for _, h := range n.report.Held {
		alive := slices.ContainsFunc(c.pods, func(o corev1.Pod) bool { return place.UID(o.UID) == h.UID })
		if alive && h.Hold.Grade == pick.Own && !h.Hold.CPUs.Intersect(contract.CPUs).Empty() {
			return place.Contract{}
		}
	}
	return contract
}

// boundAt returns when a pod was bound to its node, or else when it was made.
func boundAt(p *corev1.Pod) metav1.Time {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	return p.CreationTimestamp
}
