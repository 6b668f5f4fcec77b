package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
)

// Mutate returns the changed pod. First it applies the matching profiles. Then
// it bounds a BE pod: it renames cpu and memory to batch resources, gives each
// request a limit, and repeats requests and limits in an annotation for the
// container runtime. So the pod uses the batch resources of the node, and its
// cgroup lies below the best-effort cgroup. A pod that demands CPUs gets the
// scheduler that chooses CPUs. Annotations with chosen CPUs are deleted. All
// other LS pods stay unchanged if no profile matches them. No autoscaler shall add
// a node for a pod that uses batch resources, so the pod says so, and with Gate it has
// a scheduling gate until there is room.
//
// A pod that Tenon leaves alone stays unchanged. A pod of a namespace that it
// leaves alone gets the label that says so, and nothing else.
//
// The API server calls the webhook again after another webhook has changed the
// pod. Mutate then does not evaluate the profiles again: the first result is in
// an annotation of the pod, with a seal.
//
// Mutate does not rename the overhead of the pod. The API server admits a pod
// only with the overhead of its RuntimeClass (admission plugin RuntimeClass).
func Mutate(r Request) (*corev1.Pod, Verdict) {
	var v Verdict
	p := r.Pod.DeepCopy()
	switch {
	case isMirror(p) || kube.IsIgnored(p):
	case r.Namespace != nil && kube.IsIgnoredNamespace(r.Namespace.Labels):
		set(&p.Labels, map[string]string{kube.LabelIgnore: r.Namespace.Labels[kube.LabelIgnore]})
	default:
		r.mutate(p, &v)
		if !kube.IsIgnored(p) { // a profile may say so
			r.closeGate(p, &v)
		}
	}
	return p, v
}

func (r Request) mutate(p *corev1.Pod, v *Verdict) {
	if r.Scheduler != "" {
		deleteForged(p, v)
		defer setScheduler(p, r.Scheduler)
	}
	profiles, decided := r.chosenProfiles()
	if decided && !r.isSealed(p) {
		v.warn(Removed, "", "the annotation %s is not from this creation of the pod, and was removed: only Tenon writes it", AnnotationProfiles)
		decided = false
	}
	if !decided {
		delete(p.Annotations, AnnotationProfiles)
		delete(p.Annotations, AnnotationSeal)
		profiles = r.matchingProfiles(p, v)
		for _, profile := range profiles {
			apply(p, profile, r.PriorityClasses, v)
		}
	}
	if kube.IsIgnored(p) { // a profile says so
		return
	}
	replace(p, v)
	r.replaceScheduler(p, v)
	k, translated := kindOf(p, profiles)
	if !translated {
		unannounce(p, v)
		return
	}
	if k == batch {
		set(&p.Labels, map[string]string{kube.LabelQOSClass: string(node.BE)})
	}
	defaults, renames := givenByRange(p), r.mustRename(p, profiles, k, v)
	for _, c := range places(p) {
		if kube.Class(p) == node.BE {
			c.modernise(v)
			c.complete(batch)
		}
		if renames {
			if !c.hasAny(k.both()) {
				c.rename(k)
			}
			c.clearDefaults(k, defaults, r.Ranges, v)
		}
		c.complete(k)
	}
	announce(p)
	if kube.Class(p) == node.BE && renames {
		delayScaleUp(p)
	}
}

// isMirror reports whether a pod is the mirror of a static pod. A kubelet runs
// a static pod from a file, even if the API server rejects its mirror. The
// annotation alone does not prove a mirror pod, because any user may write it, and
// an owner, too. ValidateMirror refuses what no kubelet creates.
func isMirror(p *corev1.Pod) bool {
	_, is := p.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOf(p)
	return is && owner != nil && owner.Kind == "Node"
}

// kindOf returns the resource names for the amounts of a pod, and whether the
// webhook must rename the amounts. A BE pod gets batch resources. A pod is BE
// by its label, by the old annotation of ACK, or by a batch priority without a
// class. A pod of any class gets mid resources if a profile gives it the mid
// priority. A service that has the mid priority from another source keeps its
// amounts, because the nodes may have no mid resources.
func kindOf(p *corev1.Pod, profiles []configv1alpha1.ClusterColocationProfile) (kind, bool) {
	class, priority := kube.Class(p), kube.Priority(p)
	labelled, matched := p.Labels[kube.LabelQOSClass] != "", len(profiles) > 0
	prioritised := slices.ContainsFunc(profiles, func(o configv1alpha1.ClusterColocationProfile) bool {
		return o.Spec.PriorityClassName != "" || o.Spec.Labels[kube.LabelPriorityClass] != ""
	})
	asks := asksBatch(p)
	low := priority == kube.PriorityBatch || priority == kube.PriorityFree
	switch {
	case class == node.BE && prioritised && priority == kube.PriorityMid && !asks:
		return mid, true
	case class == node.BE:
		return batch, true
	case class == "" && !labelled && low && (asks || matched && priority == kube.PriorityBatch):
		return batch, true
	case prioritised && priority == kube.PriorityMid:
		return mid, true
	}
	return kind{}, false
}

// mustRename reports whether the amounts of a pod get the resource names of k.
// An annotation of the pod can prevent this. If no node has batch resources,
// the pod would wait forever, so its amounts usually keep their names. But if a
// profile selects the pod, or a container has batch resources, the owner of the
// pod wants batch resources. Then the amounts are renamed, and the pod waits.
func (r Request) mustRename(p *corev1.Pod, profiles []configv1alpha1.ClusterColocationProfile, k kind, v *Verdict) bool {
	asks := asksBatch(p)
	has := slices.ContainsFunc(places(p), func(c place) bool { return c.hasAny(native.both()) })
	switch {
	case isSkipped(p):
		return false
	case !r.ColocationOff || k != batch:
		return true
	case asks || len(profiles) > 0 && has:
		v.warn(Pending, "", "no node offers batch resources, because colocation-config is not enabled: the pod waits until it is")
		return true
	case len(profiles) > 0 || !has:
		return true
	}
	v.warn(Uncounted, "", "the pod keeps its cpu and memory, because colocation-config is not enabled and no node offers batch resources: the scheduler counts it like a service, and Tenon bounds it as BE on its node")
	return false
}

// isSkipped reports whether the pod has the annotation by which a profile keeps
// the amounts unchanged.
func isSkipped(p *corev1.Pod) bool {
	return p.Annotations[configv1alpha1.SkipUpdateResources] == "true"
}

// announce writes the batch and mid resources of the pod into an annotation of
// the pod. It replaces a value from the user, because a node would enforce that
// value as a limit.
func announce(p *corev1.Pod) {
	if text := extendedResources(p); text != "" {
		set(&p.Annotations, map[string]string{kube.AnnotationExtended: text})
		return
	}
	delete(p.Annotations, kube.AnnotationExtended)
}

// unannounce deletes this annotation if it differs from the containers' amounts.
func unannounce(p *corev1.Pod, v *Verdict) {
	if text, given := p.Annotations[kube.AnnotationExtended]; given && text != extendedResources(p) {
		delete(p.Annotations, kube.AnnotationExtended)
		v.warn(Removed, "", "the annotation %s is written by Tenon and was removed: write batch resources into the containers of a pod of class BE", kube.AnnotationExtended)
	}
}
