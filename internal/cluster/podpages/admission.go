package podpages

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// An Admission is the answer of the API server to a pod that it was asked to
// create without storing it (a dry run). At most one of Pod, Refused and Unasked
// is set. If none is, the API server was not asked.
type Admission struct {
	// Pod is the pod as the API server would create it.
	Pod *corev1.Pod
	// Refused is the reason of the API server to refuse the pod.
	Refused string
	// Unasked says which question has no answer, and why.
	Unasked  string
	Warnings []string
}

// Draft returns the pod to ask the API server about. A pod of a template has a
// generated name, like those that a controller creates. A ServiceAccount of the
// manifests does not exist yet, so the draft does not name it.
func (m *Manifests) Draft(w *Wanted) *corev1.Pod {
	p := w.Pod.DeepCopy()
	p.Status = corev1.PodStatus{}
	if w.Template {
		p.Name, p.GenerateName = "", cmp.Or(w.Name, "pod")+"-"
	}
	if m.makes("ServiceAccount", p.Namespace, serviceAccount(p)) {
		p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "", ""
	}
	return p
}

func serviceAccount(p *corev1.Pod) string {
	return cmp.Or(p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount)
}

// Pending returns the objects that the manifests create and without which the
// API server may refuse a pod now, or "".
func (m *Manifests) Pending(w *Wanted) string {
	var all []string
	for _, need := range []struct{ kind, name string }{
		{"Namespace", w.Pod.Namespace}, {"PriorityClass", w.Pod.Spec.PriorityClassName}, {"RuntimeClass", pointed(w.Pod.Spec.RuntimeClassName)},
	} {
		if m.makes(need.kind, "", need.name) {
			all = append(all, need.kind+" "+need.name)
		}
	}
	return strings.Join(all, ", ")
}

func pointed(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// placed returns the pod to place: as the API server would create it or, if it
// was not asked, as the profiles of the cluster make it.
func (w *Wanted) placed(by Webhook) (p *corev1.Pod, profiles string, faults []string) {
	if w.Admission.Pod == nil {
		return by.admit(&w.Pod)
	}
	p = w.Admission.Pod.DeepCopy()
	p.Namespace = w.Pod.Namespace
	return p, by.acted(p), nil
}
