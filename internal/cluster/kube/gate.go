package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// BatchGate is the scheduling gate of a batch pod that waits for batch room. The
	// webhook sets it, and the manager removes it.
	BatchGate = "tenon.sh/batch-room"
	// AnnotationScaleUpDelay is an annotation of cluster-autoscaler: it adds no node for
	// a pod that has been Unschedulable for a shorter time.
	AnnotationScaleUpDelay = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
	// AnnotationBatch is an annotation of a namespace: the terms on which its pods share
	// the batch resources of the cluster.
	AnnotationBatch = "tenon.sh/batch"
)

// HasBatchGate reports whether a pod waits for batch room.
func HasBatchGate(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.SchedulingGates, isBatchGate)
}

func isBatchGate(g corev1.PodSchedulingGate) bool { return g.Name == BatchGate }

// RemoveBatchGate returns the scheduling gates of a pod without BatchGate.
func RemoveBatchGate(gates []corev1.PodSchedulingGate) []corev1.PodSchedulingGate {
	return slices.DeleteFunc(slices.Clone(gates), isBatchGate)
}

// batchTerms is the content of AnnotationBatch.
type batchTerms struct {
	CPU    node.Maybe[unit.MilliCPU] `json:"cpu,omitzero"`
	Memory node.Maybe[unit.Bytes]    `json:"memory,omitzero"`
	Weight node.Maybe[int64]         `json:"weight,omitzero" range:"1..1000"`
}

// BatchTermsOf reads AnnotationBatch of a namespace. An unknown key is a fault. With a
// fault, the terms are not known, and count as none only if said is false. An empty text
// states nothing.
func BatchTermsOf(annotations map[string]string) (t share.Terms, said bool, faults []config.Fault) {
	t.Weight = share.DefaultWeight
	text := annotations[AnnotationBatch]
	if text == "" {
		return t, false, nil
	}
	v, faults := config.ReadJSON[batchTerms](text)
	for i := range faults {
		field := "metadata.annotations[" + AnnotationBatch + "]"
		if faults[i].Field != "" {
			field += "." + faults[i].Field
		}
		faults[i].Field = field
	}
	return share.Terms{Weight: v.Weight.Or(share.DefaultWeight), CPU: v.CPU, Memory: v.Memory}, true, faults
}

// RequestedBatch returns the batch resources that a scheduler counts for a pod.
func RequestedBatch(p *corev1.Pod) share.Amount {
	cpu, memory := Requested(p)
	return share.Amount{CPU: cpu, Memory: memory}
}
