package manifest

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// An Admission is the answer of the API server to a dry run, in which it creates
// a pod but does not store it. At most one of Pod, Refused and Unasked is set.
// If all are empty, the API server was not asked.
type Admission struct {
	// Pod is the pod as the API server would create it.
	Pod *corev1.Pod
	// Refused is the reason if the API server refuses the pod.
	Refused string
	// Unasked is the question that has no answer, with the reason.
	Unasked  string
	Warnings []string
	// Silent names the part that is missing in the answer of the API server, with
	// the reason.
	Silent string
}

// Draft returns the pod for the dry run. A pod of a template has a generated
// name, like the pods of a controller, and so has a pod whose name is taken. If the manifests create the pod's
// ServiceAccount, the draft does not name it, because it does not exist yet.
func (m *Set) Draft(w *Wanted) *corev1.Pod {
	p := w.Pod.DeepCopy()
	p.Status = corev1.PodStatus{}
	if w.Template || w.Exists {
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

// Pending returns the objects that the manifests create and that a pod needs.
// The API server may refuse the pod now, because they do not exist yet.
func (m *Set) Pending(w *Wanted) string {
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
