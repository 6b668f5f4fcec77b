package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/model/cpus"
)

// demandAnnotations lists the annotations in which a pod demands CPUs. Their
// owner may change them while the pod runs, as in the API server and in
// Koordinator. A change of the class is refused.
var demandAnnotations = []string{
	kube.AnnotationCPUSetScheduler, kube.AnnotationCPUPolicy, kube.AnnotationResourceSpec, kube.AnnotationNUMASpec, kube.AnnotationACKNUMASpec,
}

// warnTaken warns if an update takes CPUs away from a pod that has a node. It
// does not refuse the update: the owner may want this, and the node obeys. While
// a resize is pending, the pod has the CPUs from before.
func (v *Verdict) warnTaken(old, p *corev1.Pod) {
	if !v.Allowed() || p.Spec.NodeName == "" || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	field, next := changedField(old, p), p
	if field != resourcesField {
		next = stored.InForce(p) // a pending resize stays pending
	}
	before, had, _ := kube.DemandOf(stored.InForce(old))
	after, has, _ := kube.DemandOf(next)
	fate := ""
	switch {
	case !had || has && after.Policy == before.Policy:
		return
	case !has && before.Policy == cpus.Exclusive:
		fate = "shares the CPUs that no pod owns; other pods may get them"
	case !has:
		fate = "runs on all CPUs that no pod owns"
	case before.Policy == cpus.Exclusive:
		article := map[bool]string{true: "a "}[after.Policy == cpus.Pool]
		fate = fmt.Sprintf("gets %s%s instead, which it shares", article, holding(after.Request))
	default: // its seats become a pool, or CPUs of its own, or its pool becomes seats
		return
	}
	v.warn(GivenUp, field, "the pod gives up its %s now and %s. What was there before asks for CPUs again, and may bring others", holding(before.Request), fate)
}

// holding prints what a pod with a claim holds.
func holding(c cpus.Request) string {
	switch {
	case c.Policy == cpus.Pool:
		return "pool of CPUs"
	case c.Policy == cpus.Exclusive && c.CPUs == 1:
		return "own CPU"
	case c.Policy == cpus.Exclusive:
		return fmt.Sprintf("%d own CPUs", c.CPUs)
	case c.CPUs == 1:
		return "1 seat"
	}
	return fmt.Sprintf("%d seats", c.CPUs)
}

const resourcesField = "spec.containers.resources"

// changedField returns the path of the changed field that makes a pod demand
// other CPUs.
func changedField(old, p *corev1.Pod) string {
	if kube.IsIgnored(p) != kube.IsIgnored(old) {
		return label(kube.LabelIgnore)
	}
	for _, key := range demandAnnotations {
		was, had := old.Annotations[key]
		if is, has := p.Annotations[key]; is != was || had != has {
			return annotation(key)
		}
	}
	return resourcesField
}
