// Package neighbour finds objects of other controllers that do not work with
// batch work as their owners expect. It decides; its caller writes the words.
package neighbour

import (
	"cmp"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/model/node"
)

// A Code says what does not work.
type Code string

// The values of Code.
const (
	// NoRequest: a HorizontalPodAutoscaler computes the use of a resource as a
	// part of its request, and the pods have none. It scales nothing
	// (k8s.io/kubernetes/pkg/controller/podautoscaler: replica_calculator.go).
	NoRequest Code = "no-request"
	// Resized: a VerticalPodAutoscaler writes cpu and memory into pods that have
	// batch resources, and the webhook refuses these pods.
	Resized Code = "resized"
	// Booked: Kueue books the cpu and memory of a template, and the webhook makes
	// batch resources of them.
	Booked Code = "booked"
)

// A Finding is an object that does not work with batch work.
type Finding struct {
	Code            Code
	Namespace, Name string
	// Kind and Target name the object that makes the pods.
	Kind, Target string
	// Resources are cpu, memory or both.
	Resources []corev1.ResourceName
}

// QueueLabel is the label by which a Job asks Kueue for room.
const QueueLabel = "kueue.x-k8s.io/queue-name"

// Objects are the objects of other controllers in a cluster.
type Objects struct {
	HPAs []autoscalingv2.HorizontalPodAutoscaler
	// VPAs are VerticalPodAutoscalers (autoscaling.k8s.io/v1), whose types are in no
	// module of Kubernetes.
	VPAs []unstructured.Unstructured
	Jobs []batchv1.Job
}

// Find returns what does not work, in the order of namespaces and names. pods are
// those of the cluster, of which only batch pods count. created returns a pod as the webhook changes it.
func Find(o Objects, pods []corev1.Pod, created func(*corev1.Pod) *corev1.Pod) []Finding {
	var all []Finding
	batch := map[string][]*corev1.Pod{} // by namespace
	for i := range pods {
		if p := &pods[i]; kube.Class(p) == node.BE && !kube.IsIgnored(p) && !kube.HasEnded(p) {
			batch[p.Namespace] = append(batch[p.Namespace], p)
		}
	}
	for i := range o.HPAs {
		h := &o.HPAs[i]
		ref := h.Spec.ScaleTargetRef
		f := Finding{Code: NoRequest, Namespace: h.Namespace, Name: h.Name, Kind: ref.Kind, Target: ref.Name}
		for _, n := range utilizations(h) {
			if slices.ContainsFunc(batch[f.Namespace], func(p *corev1.Pod) bool { return stored.IsMadeBy(p, f.Kind, f.Target) && lacks(p, n) }) {
				f.Resources = append(f.Resources, n)
			}
		}
		if len(f.Resources) > 0 {
			all = append(all, f)
		}
	}
	for i := range o.VPAs {
		v := &o.VPAs[i]
		var a autoscaler
		if runtime.DefaultUnstructuredConverter.FromUnstructured(v.Object, &a) != nil {
			continue // an object of another form names no pods
		}
		ref := a.Spec.TargetRef
		f := Finding{Code: Resized, Namespace: v.GetNamespace(), Name: v.GetName(), Kind: ref.Kind, Target: ref.Name}
		for _, n := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if slices.ContainsFunc(batch[f.Namespace], func(p *corev1.Pod) bool {
				return stored.IsMadeBy(p, f.Kind, f.Target) && usesBatch(p) && a.writes(p, n)
			}) {
				f.Resources = append(f.Resources, n)
			}
		}
		if len(f.Resources) > 0 {
			all = append(all, f)
		}
	}
	for i := range o.Jobs {
		j := &o.Jobs[i]
		if j.Labels[QueueLabel] == "" || hasEnded(j) {
			continue
		}
		f := Finding{Code: Booked, Namespace: j.Namespace, Name: j.Name, Kind: "Job", Target: j.Name}
		p := &corev1.Pod{ObjectMeta: j.Spec.Template.ObjectMeta, Spec: j.Spec.Template.Spec}
		p.Namespace = j.Namespace
		before, after := p.DeepCopy(), created(p)
		for _, n := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if requests(before, n) && !requests(after, n) {
				f.Resources = append(f.Resources, n)
			}
		}
		if len(f.Resources) > 0 {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// utilizations returns the resources whose use an autoscaler compares with their
// requests.
func utilizations(h *autoscalingv2.HorizontalPodAutoscaler) []corev1.ResourceName {
	var all []corev1.ResourceName
	for _, m := range h.Spec.Metrics {
		var name corev1.ResourceName
		var target autoscalingv2.MetricTarget
		switch {
		case m.Resource != nil:
			name, target = m.Resource.Name, m.Resource.Target
		case m.ContainerResource != nil:
			name, target = m.ContainerResource.Name, m.ContainerResource.Target
		}
		if target.Type == autoscalingv2.UtilizationMetricType && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// lacks reports whether a container of a pod has no request for a resource. Then
// no use of the pod can be computed as a part of it.
func lacks(p *corev1.Pod, n corev1.ResourceName) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		q := c.Resources.Requests[n]
		return q.IsZero()
	})
}

// requests reports whether a container of a pod has a request or a limit for a
// resource.
func requests(p *corev1.Pod, n corev1.ResourceName) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool {
		request, limit := c.Resources.Requests[n], c.Resources.Limits[n]
		return !request.IsZero() || !limit.IsZero()
	})
}

func usesBatch(p *corev1.Pod) bool {
	return requests(p, kube.BatchCPU) || requests(p, kube.BatchMemory)
}

// An autoscaler has the fields of a VerticalPodAutoscaler that say what it writes.
type autoscaler struct {
	Spec struct {
		TargetRef struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"targetRef"`
		UpdatePolicy struct {
			Mode string `json:"updateMode"`
		} `json:"updatePolicy"`
		ResourcePolicy struct {
			Containers []struct {
				Name      string                 `json:"containerName"` // *: all that have no policy of their own
				Mode      string                 `json:"mode"`
				Resources *[]corev1.ResourceName `json:"controlledResources"` // nil: cpu and memory
			} `json:"containerPolicies"`
		} `json:"resourcePolicy"`
	} `json:"spec"`
}

// off is the mode of an autoscaler, or of its policy for a container, that writes nothing.
const off = "Off"

// writes reports whether an autoscaler writes a resource into a container of a new pod.
func (a *autoscaler) writes(p *corev1.Pod, n corev1.ResourceName) bool {
	if a.Spec.UpdatePolicy.Mode == off {
		return false
	}
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		writes := true
		for _, policy := range a.Spec.ResourcePolicy.Containers {
			if policy.Name != c.Name && policy.Name != "*" {
				continue
			}
			writes = policy.Mode != off && (policy.Resources == nil || slices.Contains(*policy.Resources, n))
			if policy.Name == c.Name {
				break
			}
		}
		return writes
	})
}

func hasEnded(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}
