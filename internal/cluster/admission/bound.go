package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
)

// Unbounded returns what leaves a pod of class BE without bounds; none for
// other pods. A BE pod is bounded if
//
//   - it asks for no cpu and memory of its own, so that the kubelet puts it
//     below its best-effort cgroup, where all best-effort work of the node is
//     held together; or, where a profile left it as it was, each of its
//     containers has limits for both, which the kubelet sets, and none asks for
//     batch resources;
//   - all that it asks for of batch resources has a limit that can be counted;
//   - the annotation for the container runtime says the same as the containers.
//
// A BE pod that asks for nothing has no limit of its own, as it is for
// Kubernetes: the first bound holds it.
func Unbounded(p *corev1.Pod) []Refusal {
	if kube.Class(p) != node.BE {
		return nil
	}
	var v Verdict
	if r := p.Spec.Resources; r != nil {
		whole := place{&corev1.Container{Resources: *r}, "spec.resources"}
		for _, l := range whole.lists() {
			for _, n := range l.names() {
				if n == native.cpu || n == native.memory {
					v.refuse(l.field(n), "a pod of class BE has no cpu or memory as a whole: ask for %s and %s in its containers", batch.cpu, batch.memory)
				}
			}
		}
	}
	for _, c := range places(p) {
		v.native(p, c)
		v.batch(c)
	}
	if text, want := p.Annotations[kube.AnnotationExtended], extended(p); text != want {
		v.refuse(annotation(kube.AnnotationExtended), "does not say what the containers ask for, and a container runtime would go by it: leave it out, Tenon writes it")
	}
	return v.Refusals
}

// native refuses cpu and memory of a BE container's own.
func (v *Verdict) native(p *corev1.Pod, c place) {
	mixed := c.hasAny(batchNames())
	beside := slices.ContainsFunc(places(p), func(o place) bool { return o.hasAny(batchNames()) })
	for _, l := range c.lists() {
		for _, n := range l.names() {
			q, to := l.of[n], batch.cpu
			if n == native.memory {
				to = batch.memory
			}
			switch {
			case n != native.cpu && n != native.memory || q.IsZero():
			case mixed:
				v.refuse(l.field(n), "this container asks for batch resources, too: want either; write %s: %s instead%s", to, inBatch(n, q), mayBeDefault(p))
			case beside:
				v.refuse(l.field(n), "another container of this pod asks for batch resources: want either in all of them; write %s: %s instead%s", to, inBatch(n, q), mayBeDefault(p))
			case !skipped(p):
				v.refuse(l.field(n), "a pod of class BE runs in what others leave idle: write %s: %s instead", to, inBatch(n, q))
			}
		}
	}
	// A pod with any cpu or memory lies among services, where nothing but limits
	// holds it: a container without them would not be held at all.
	if !skipped(p) || beside || kube.QOSClass(p) == corev1.PodQOSBestEffort {
		return
	}
	for _, n := range native.both() {
		if limit := c.Resources.Limits[n]; limit.Sign() <= 0 {
			v.refuse(c.field+".limits["+string(n)+"]", "missing: a pod of class BE that keeps its own cpu and memory is held by limits alone: write both")
		}
	}
}

// inBatch is how a native amount is written for batch resources.
func inBatch(n corev1.ResourceName, q resource.Quantity) string {
	if n != native.cpu {
		return q.String()
	}
	if q.Sign() < 0 || q.Cmp(mostCPUs) > 0 {
		return "(thousandths of a CPU)"
	}
	milli := kube.CPUQuantity(milliOf(q))
	return milli.String()
}

// batch refuses amounts of batch resources that do not bound, or mean nothing.
func (v *Verdict) batch(c place) {
	for _, l := range c.lists() {
		for _, n := range l.names() {
			if kube.IsBatch(n) && n != batch.cpu && n != batch.memory {
				v.refuse(l.field(n), "stands beside a newer name for the same: write that alone")
			}
		}
	}
	for _, n := range batch.both() {
		request, requested := c.Resources.Requests[n]
		limit, limited := c.Resources.Limits[n]
		at := func(list string) string { return c.field + "." + list + "[" + string(n) + "]" }
		if requested {
			v.counted(at("requests"), n, request)
		}
		switch {
		case limited:
			v.counted(at("limits"), n, limit)
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

// counted refuses an amount that is no whole number that a machine may have.
func (v *Verdict) counted(field string, n corev1.ResourceName, q resource.Quantity) {
	most, unit := mostBytes, "bytes, such as 512Mi"
	if n == batch.cpu || n == mid.cpu {
		most, unit = mostMilli, "thousandths of a CPU: 1k is one CPU"
	}
	switch {
	case q.Sign() < 0, q.Cmp(most) > 0:
		v.refuse(field, "%s: want %s to %s %s", q.String(), "0", most.String(), unit)
	case q.Cmp(*resource.NewQuantity(q.Value(), q.Format)) != 0:
		v.refuse(field, "%s: want a whole number of %s", q.String(), unit)
	}
}
