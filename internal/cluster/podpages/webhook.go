package podpages

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/manifest"
)

// A Webhook contains the inputs of the webhook that changes new pods: the
// colocation profiles of the cluster and, by name, the objects to which the
// profiles refer.
type Webhook struct {
	Profiles        []configv1alpha1.ClusterColocationProfile
	Namespaces      map[string]*corev1.Namespace
	PriorityClasses map[string]schedulingv1.PriorityClass
	// Unread lists the objects that could not be read, with the reasons.
	Unread []string
}

// admit applies the profiles to the pod of a manifest. It returns the changed
// pod (as), the names of the profiles that changed it (by), and why other
// profiles are not applied (faults). It applies each profile with a probability
// above 0, and names the probability if it is below 100 %.
func (w Webhook) admit(p *corev1.Pod) (as *corev1.Pod, by string, faults []string) {
	if len(w.Profiles) == 0 {
		return p, "", nil
	}
	changed, verdict := admission.Mutate(admission.Request{
		Pod: p, Namespace: w.Namespaces[cmp.Or(p.Namespace, corev1.NamespaceDefault)], Profiles: w.Profiles, PriorityClasses: w.PriorityClasses,
	})
	for _, warning := range verdict.Warnings {
		if warning.Code == admission.ProfileFaulty {
			faults = append(faults, warning.String())
		}
	}
	if by = w.acted(changed); by == "" {
		return p, "", faults
	}
	return changed, by, faults
}

// acted returns the names of the profiles that changed a pod.
func (w Webhook) acted(p *corev1.Pod) string {
	var all []string
	for name := range strings.SplitSeq(p.Annotations[admission.AnnotationProfiles], ",") {
		if name != "" && !strings.HasPrefix(name, "-") {
			all = append(all, w.nameProfile(name))
		}
	}
	return strings.Join(all, ", ")
}

// Drawn returns a pod with the changes of all matching profiles. Some profiles
// apply only with a probability, so the API server's answer (admitted) may lack
// their changes. If no such profile matches the pod, Drawn returns nil.
func (w Webhook) Drawn(p, admitted *corev1.Pod) *corev1.Pod {
	for name := range strings.SplitSeq(admitted.Annotations[admission.AnnotationProfiles], ",") {
		name = strings.TrimPrefix(name, "-")
		if w.nameProfile(name) != name {
			changed, _, _ := w.admit(p)
			return changed
		}
	}
	return nil
}

// nameProfile returns the name of a profile, with its probability if that is
// below 100 %.
func (w Webhook) nameProfile(name string) string {
	for _, p := range w.Profiles {
		if p.Name != name {
			continue
		}
		if percent, err := admission.Percent(p); err == nil && percent < 100 {
			return fmt.Sprintf("%s (%d %% of such pods)", name, percent)
		}
	}
	return name
}

// placedPod returns the pod to place, in the form in which the API server would
// create it. If the API server was not asked, the profiles change the pod, unless
// no webhook would apply them.
func placedPod(w *manifest.Wanted, by Webhook) (p *corev1.Pod, profiles string, faults []string) {
	if w.Admission.Pod == nil && w.NoManager != "" {
		return &w.Pod, "", nil
	}
	if w.Admission.Pod == nil {
		return by.admit(&w.Pod)
	}
	p = w.Admission.Pod.DeepCopy()
	p.Namespace = w.Pod.Namespace
	return p, by.acted(p), nil
}
