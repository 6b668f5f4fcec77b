package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
)

// Mutate returns the pod as it is to be created. The profiles that match change
// it first. Then a pod of class BE gets what bounds it: its cpu and memory are
// asked for under the names of batch work, so that they come out of what others
// leave idle and the pod lies where best-effort work is held; each request has
// its limit; and an annotation repeats both for the container runtime. A service
// that no profile matches comes back as it was sent.
//
// The API server calls again when another webhook changed the pod. The profiles
// are not asked a second time then: an annotation says what they decided.
//
// The pod's overhead keeps its names: the API server admits a pod only with the
// overhead of its RuntimeClass (admission plugin RuntimeClass).
func Mutate(r Request) (*corev1.Pod, Verdict) {
	var v Verdict
	p := r.Pod.DeepCopy()
	if mirrors(p) {
		return p, v
	}
	profiles, decided := r.decided()
	if !decided {
		profiles = r.matching(p, &v)
		for _, profile := range profiles {
			apply(p, profile, r.PriorityClasses, &v)
		}
	}
	replace(p, &v)
	k, translated := kindOf(p, profiles)
	if !translated {
		unannounce(p, &v)
		return p, v
	}
	if k == batch {
		set(&p.Labels, map[string]string{kube.LabelQOSClass: string(node.BE)})
	}
	defaults := givenByRange(p)
	for _, c := range places(p) {
		if k == batch {
			c.modernise(&v)
		}
		if !skipped(p) {
			if !c.hasAny(k.both()) {
				c.rename(k)
			}
			c.without(defaults)
		}
		c.complete(k)
	}
	announce(p)
	return p, v
}

// mirrors reports whether a pod only shows another that a kubelet runs from a
// file: whatever is said to it, that one runs as it is. Such a pod belongs to its
// node, which only a kubelet may write (admission plugin NodeRestriction); the
// annotation alone anybody may write.
func mirrors(p *corev1.Pod) bool {
	_, is := p.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOf(p)
	return is && owner != nil && owner.Kind == "Node"
}

// kindOf returns what the amounts of a pod are to be called. BE work asks for
// batch resources, by whatever it is BE: its label, ACK's annotation of before,
// or a priority of batch work that a profile or its owner gave to a pod that
// names no class. Only a profile that itself gives the priority makes a pod ask
// for mid resources, which no node may offer: a service that has the priority
// from elsewhere runs as it is.
func kindOf(p *corev1.Pod, profiles []configv1alpha1.ClusterColocationProfile) (kind, bool) {
	class, priority := kube.Class(p), kube.Priority(p)
	labelled, matched := p.Labels[kube.LabelQOSClass] != "", len(profiles) > 0
	prioritised := slices.ContainsFunc(profiles, func(o configv1alpha1.ClusterColocationProfile) bool {
		return o.Spec.PriorityClassName != "" || o.Spec.Labels[kube.LabelPriorityClass] != ""
	})
	asks := slices.ContainsFunc(places(p), func(c place) bool { return c.hasAny(batchNames()) })
	low := priority == kube.PriorityBatch || priority == kube.PriorityFree
	switch {
	case class == node.BE:
		return batch, true
	case class == "" && !labelled && low && (asks || matched && priority == kube.PriorityBatch):
		return batch, true
	case prioritised && priority == kube.PriorityMid:
		return mid, true
	}
	return kind{}, false
}

// skipped reports whether a profile left the amounts of the pod as they are.
func skipped(p *corev1.Pod) bool {
	return p.Annotations[configv1alpha1.SkipUpdateResources] == "true"
}

// announce writes what the pod asks for into its annotation. What its owner
// wrote there does not count: the node would take it for a limit.
func announce(p *corev1.Pod) {
	if text := extended(p); text != "" {
		set(&p.Annotations, map[string]string{kube.AnnotationExtended: text})
		return
	}
	delete(p.Annotations, kube.AnnotationExtended)
}

// unannounce takes away an annotation that nothing in the pod stands behind.
func unannounce(p *corev1.Pod, v *Verdict) {
	if text, given := p.Annotations[kube.AnnotationExtended]; given && text != extended(p) {
		delete(p.Annotations, kube.AnnotationExtended)
		v.warn("the annotation %s is written by Tenon and was taken away: write batch resources into the containers of a pod of class BE", kube.AnnotationExtended)
	}
}
