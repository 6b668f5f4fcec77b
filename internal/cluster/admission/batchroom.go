package admission

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
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

// daemonSetControllers are the users as which the DaemonSet controller of Kubernetes
// creates pods: with --use-service-account-credentials of kube-controller-manager, and
// without it.
var daemonSetControllers = []string{"system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager"}

// closeGate gives a pod the scheduling gate of batch pods, if Gate of r says so and a
// scheduler will choose the node of the pod. A pod of a DaemonSet must run on its node,
// and a pod without batch resources waits for none of them. closeGate removes the gate
// from all other pods, because nothing would open it. Everybody may write a DaemonSet as
// the owner of a pod, so it counts only in what the DaemonSet controller creates.
func (r Request) closeGate(p *corev1.Pod, v *Verdict) {
	owner := metav1.GetControllerOf(p)
	placed := p.Spec.NodeName != "" || owner != nil && owner.Kind == "DaemonSet" && slices.Contains(daemonSetControllers, r.User)
	gated := kube.HasBatchGate(p)
	switch wants := !placed && kube.Class(p) == node.BE && kube.RequestedBatch(p) != (share.Amount{}) && r.Gate != nil && r.Gate(); {
	case !wants && gated:
		p.Spec.SchedulingGates = kube.RemoveBatchGate(p.Spec.SchedulingGates)
		v.warn(Removed, "spec.schedulingGates", "the gate %s was removed: the webhook sets it itself in the batch pods that wait for room", kube.BatchGate)
	case wants && !gated:
		p.Spec.SchedulingGates = append(slices.Clone(p.Spec.SchedulingGates), corev1.PodSchedulingGate{Name: kube.BatchGate})
		v.warn(Pending, "spec.schedulingGates", "the pod goes to its scheduler when a node has batch room for it; until then it has the gate %s, and after a minute an event says why it waits", kube.BatchGate)
	}
}

// ValidateTerms checks a new BE pod against the terms of its namespace while batch pods
// have a gate. The gate keeps its pods within a cap; ValidateTerms refuses a pod that is
// above the cap alone. A pod without a gate gets its node at once, so it is refused if it
// exceeds the cap beside what the pods of the namespace request already, which used
// returns.
func ValidateTerms(p *corev1.Pod, annotations map[string]string, used func() (share.Amount, error)) (Verdict, error) {
	var v Verdict
	asks := kube.RequestedBatch(p)
	terms, said, faults := kube.BatchTermsOf(annotations)
	gated := kube.HasBatchGate(p)
	switch {
	case isMirror(p) || !said || kube.Class(p) != node.BE || asks == (share.Amount{}) || gated && len(faults) > 0:
		return v, nil
	case len(faults) > 0:
		v.refuse("spec", "what the namespace may have of batch resources is not known, because %s of the namespace has a fault: ask an administrator to correct it", faults[0].Field)
		return v, nil
	case !terms.Capped():
		return v, nil
	case !terms.Allow(share.Amount{}, asks):
		v.refuse("spec.containers.resources.requests", "the pod asks for batch-cpu %s and batch-memory %s: the namespace may have %s in all (annotation %s of the namespace)", node.Readable(asks.CPU), node.Readable(asks.Memory), capText(terms), kube.AnnotationBatch)
		return v, nil
	case gated:
		return v, nil
	}
	has, err := used()
	if err == nil && !terms.Allow(has, asks) {
		v.refuse("spec.containers.resources.requests", "the pod goes to its node at once, and asks for batch-cpu %s and batch-memory %s: the namespace has %s and %s, and may have %s (annotation %s of the namespace): end other pods first", node.Readable(asks.CPU), node.Readable(asks.Memory), node.Readable(has.CPU), node.Readable(has.Memory), capText(terms), kube.AnnotationBatch)
	}
	return v, err
}

// capText prints the caps of a namespace that has one.
func capText(t share.Terms) string {
	var caps []string
	if cpu, capped := t.CPU.Value(); capped {
		caps = append(caps, "batch-cpu "+node.Readable(cpu))
	}
	if memory, capped := t.Memory.Value(); capped {
		caps = append(caps, "batch-memory "+node.Readable(memory))
	}
	return strings.Join(caps, " and ")
}
