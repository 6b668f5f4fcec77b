package admission

import (
	"strings"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
)

// A Miss describes a running pod with another class than its profiles would
// have given it when it was created.
type Miss struct {
	// Was is the present class of the pod. Would is the class that the profiles
	// would have set.
	Was, Would node.Class
	// Profiles are the names of the profiles that match the pod and may change
	// its class, in alphabetical order.
	Profiles []string
}

// ApplyMissed applies the profiles of r to its pod, as if the pod were new. It
// reports whether the class of the pod would change. The API server admitted
// the pod without the webhook, so the pod has no AnnotationProfiles, or that of
// another pod. A profile is applied if its probability is above 0.
func ApplyMissed(r Request) (Miss, bool) {
	r.Draw = nil
	if !Decided(r.Pod.Annotations, r.Pod.CreationTimestamp.Time) {
		r.Pod = r.Pod.DeepCopy()
		delete(r.Pod.Annotations, AnnotationProfiles)
	}
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
// that sets a batch priority may do so, because a pod with that priority and
// without a class is BE.
func NamesClass(p configv1alpha1.ClusterColocationProfile) bool {
	s := p.Spec
	return s.QoSClass != "" || s.PriorityClassName != "" || s.Labels[kube.LabelQOSClass] != "" || s.Labels[kube.LabelPriorityClass] != "" ||
		s.Annotations[kube.AnnotationACKQOSClass] != "" || len(s.Patch.Raw) > 0
}
