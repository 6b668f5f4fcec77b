package admission

import (
	"strings"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
)

// A Miss says that a running pod has another class than it would have if the
// profiles had been applied when it was created.
type Miss struct {
	// Was is the class of the pod. Would is the class that the profiles would
	// have given it.
	Was, Would node.Class
	// Profiles are the names of the profiles that match the pod and may change
	// its class, in alphabetical order.
	Profiles []string
}

// ApplyMissed applies the profiles of r to its pod, as if the pod were being
// created. It reports whether the pod would have another class. The pod is one
// that the API server admitted without the webhook, so it has no
// AnnotationProfiles. A profile with a probability above 0 counts as if it
// acted.
func ApplyMissed(r Request) (Miss, bool) {
	r.Draw = nil
	changed, _ := Mutate(r)
	m := Miss{Was: kube.ClassWithDefault(r.Pod), Would: kube.ClassWithDefault(changed)}
	if m.Was == m.Would {
		return Miss{}, false
	}
	acted := strings.Split(changed.Annotations[AnnotationProfiles], ",")
	for _, p := range sorted(r.Profiles) {
		for _, name := range acted {
			if name == p.Name && NamesClass(p) {
				m.Profiles = append(m.Profiles, name)
			}
		}
	}
	return m, len(m.Profiles) > 0
}

// NamesClass reports whether a profile may change the class of a pod. A profile
// that sets a batch priority may change it, because a pod with that priority
// and without a class is BE.
func NamesClass(p configv1alpha1.ClusterColocationProfile) bool {
	s := p.Spec
	return s.QoSClass != "" || s.PriorityClassName != "" || s.Labels[kube.LabelQOSClass] != "" || s.Labels[kube.LabelPriorityClass] != "" ||
		s.Annotations[kube.AnnotationACKQOSClass] != "" || len(s.Patch.Raw) > 0
}
