package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Unbounded returns the reasons why the CPU and memory of a BE pod are not
// bounded. It returns none for pods of other classes. A BE pod is bounded if
//   - it has no amounts of cpu and memory. The kubelet then puts it below its
//     best-effort cgroup, where Tenon limits all best-effort work of the node
//     together. There are three exceptions. First, a profile may keep cpu and
//     memory. Then each container needs limits for both, which the kubelet
//     enforces, and no container may have batch resources. Second, if
//     colocationOff is set, no node has batch resources. Then the pod has
//     only cpu and memory, with or without limits. Tenon bounds its CPU
//     on its node, and the kernel treats its memory as for any other pod.
//     Third, a LimitRange may impose an amount beside a batch resource of the
//     same kind. Its node bounds the pod by the batch resource;
//   - each batch resource has a limit within the allowed range;
//   - the annotation for the container runtime has the same amounts as the
//     containers.
//
// A BE pod without any amounts has no limit of its own, as in Kubernetes. The
// limit of the best-effort cgroup applies to it.
func Unbounded(p *corev1.Pod, colocationOff bool, ranges Ranges) []Refusal {
	if kube.Class(p) != node.BE {
		return nil
	}
	var v Verdict
	keeps := colocationOff && !asksBatch(p)
	if r := p.Spec.Resources; r != nil && !keeps {
		whole := place{&corev1.Container{Resources: *r}, "spec.resources"}
		for _, l := range whole.lists() {
			for _, n := range l.names() {
				if n == native.cpu || n == native.memory {
					v.refuse(l.field(n), "a pod of class BE cannot have cpu or memory at pod level: write %s and %s in its containers", batch.cpu, batch.memory)
				}
			}
		}
	}
	for _, c := range places(p) {
		if !keeps {
			v.checkNative(p, c, ranges)
		}
		v.checkBatch(c)
	}
	if text, want := p.Annotations[kube.AnnotationExtended], extendedResources(p); text != want {
		v.refuse(annotation(kube.AnnotationExtended), "differs from the resources of the containers, and a container runtime would use it: leave it out, Tenon writes it")
	}
	return v.Refusals
}

// checkNative refuses amounts of cpu and memory in a container of a BE pod. The
// exceptions are those of Unbounded.
func (v *Verdict) checkNative(p *corev1.Pod, c place, ranges Ranges) {
	mixed := c.hasAny(batchNames())
	beside := asksBatch(p)
	for _, l := range c.lists() {
		for _, n := range l.names() {
			q, to := l.of[n], batch.cpu
			if n == native.memory {
				to = batch.memory
			}
			switch {
			case n != native.cpu && n != native.memory || q.IsZero():
			case c.names(to) && slices.ContainsFunc(ranges.imposed(l.name, n), q.Equal):
			case mixed:
				v.refuse(l.field(n), "this container also has batch resources: want only one kind; write %s: %s instead%s", to, printInBatchUnit(n, q), mayBeDefault(p))
			case beside:
				v.refuse(l.field(n), "another container of this pod has batch resources: want the same kind in all containers; write %s: %s instead%s", to, printInBatchUnit(n, q), mayBeDefault(p))
			case !isSkipped(p):
				v.refuse(l.field(n), "a pod of class BE runs on CPU and memory that others leave idle: write %s: %s instead", to, printInBatchUnit(n, q))
			}
		}
	}
	// Kubernetes puts a pod with native cpu or memory outside the best-effort
	// cgroup. Only the pod's own limits bound it there, so each container needs
	// limits.
	if !isSkipped(p) || beside || kube.QOSClass(p) == corev1.PodQOSBestEffort {
		return
	}
	for _, n := range native.both() {
		if limit := c.Resources.Limits[n]; limit.Sign() <= 0 {
			v.refuse(c.field+".limits["+string(n)+"]", "missing: only its limits bound a pod of class BE that keeps its own cpu and memory: write both")
		}
	}
}

// printInBatchUnit prints an amount of cpu or memory in the unit of the batch
// resource, as an example for the user.
func printInBatchUnit(n corev1.ResourceName, q resource.Quantity) string {
	switch {
	case n == native.cpu && (q.Sign() < 0 || q.Cmp(maxCPUs) > 0):
		return "0 to " + maxMilli.String() + " (thousandths of a CPU)"
	case n == native.memory && (q.Sign() < 0 || q.Cmp(maxBytes) > 0):
		return "0 to " + maxBytes.String()
	}
	text := inBatchUnit(n, q)
	return text.String()
}

// checkBatch refuses a batch resource that has an invalid amount or no limit.
func (v *Verdict) checkBatch(c place) {
	for _, l := range c.lists() {
		for _, n := range l.names() {
			if kube.IsBatch(n) && n != batch.cpu && n != batch.memory {
				v.refuse(l.field(n), "the container also has the new name of this resource: write only the new name")
			}
		}
	}
	for _, n := range batch.both() {
		request, requested := c.Resources.Requests[n]
		limit, limited := c.Resources.Limits[n]
		at := func(list string) string { return c.field + "." + list + "[" + string(n) + "]" }
		if requested {
			v.checkAmount(at("requests"), n, request)
		}
		switch {
		case limited:
			v.checkAmount(at("limits"), n, limit)
			if limit.IsZero() {
				v.refuse(at("limits"), "0 is no limit: want an amount above 0")
			}
			if requested && request.Cmp(limit) > 0 {
				v.refuse(at("requests"), "%s: want at most the limit, which is %s", request.String(), limit.String())
			}
		case requested && !request.IsZero():
			v.refuse(at("limits"), "missing: without a limit nothing bounds this container: write %s", request.String())
		}
	}
}

// checkAmount refuses an amount that is negative, not a whole number, or larger
// than any machine has.
func (v *Verdict) checkAmount(field string, n corev1.ResourceName, q resource.Quantity) {
	most, in := maxBytes, "bytes, such as 512Mi"
	if n == batch.cpu || n == mid.cpu {
		most, in = maxMilli, "thousandths of a CPU: 1k is one CPU"
	}
	switch {
	case q.Sign() < 0, q.Cmp(most) > 0:
		v.refuse(field, "%s: want %s to %s %s", q.String(), "0", most.String(), in)
	case quantity.Whole(q, unit.Down) != quantity.Whole(q, unit.Up):
		v.refuse(field, "%s: want a whole number of %s", q.String(), in)
	}
}
