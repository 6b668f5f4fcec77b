package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
)

// matchingProfiles returns the profiles that change the pod, sorted by name. A
// profile with an invalid selector or probability does not match, because an
// unintended BE pod is worse than an unintended LS pod. (In Koordinator it
// matches.)
//
// matchingProfiles also stores the names of the matching profiles in an
// annotation of the pod. A minus before a name means that the profile leaves
// the pod unchanged because of its probability.
func (r Request) matchingProfiles(pod *corev1.Pod, v *Verdict) []configv1alpha1.ClusterColocationProfile {
	var all []configv1alpha1.ClusterColocationProfile
	var words []string
	for _, p := range sorted(r.Profiles) {
		percent, err := r.matches(p)
		switch {
		case err != nil:
			v.warn(ProfileFaulty, "", "ClusterColocationProfile %s is not applied: %v", p.Name, err)
		case percent < 0:
		case percent == 100 || r.draw()*100 < float64(percent):
			all = append(all, p)
			words = append(words, p.Name)
		default:
			words = append(words, notDrawn+p.Name)
		}
	}
	if len(words) > 0 {
		set(&pod.Annotations, map[string]string{AnnotationProfiles: strings.Join(words, ",")})
		r.seal(pod)
	}
	return all
}

// AnnotationProfiles is an annotation that lists the profiles that matched a pod.
const AnnotationProfiles = "tenon.sh/colocation-profiles"

const notDrawn = "-"

// chosenProfiles returns the profiles in the annotation AnnotationProfiles of
// the pod. decided is false if the pod does not have the annotation.
func (r Request) chosenProfiles() ([]configv1alpha1.ClusterColocationProfile, bool) {
	text, decided := r.Pod.Annotations[AnnotationProfiles]
	words := strings.Split(text, ",")
	all := sorted(r.Profiles)
	return slices.DeleteFunc(all, func(p configv1alpha1.ClusterColocationProfile) bool { return !slices.Contains(words, p.Name) }), decided
}

func sorted(profiles []configv1alpha1.ClusterColocationProfile) []configv1alpha1.ClusterColocationProfile {
	all := slices.Clone(profiles)
	slices.SortStableFunc(all, func(a, b configv1alpha1.ClusterColocationProfile) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// matches returns the probability, in percent, with which a profile changes the
// pod of r. The number is below 0 if the profile does not select the pod.
func (r Request) matches(p configv1alpha1.ClusterColocationProfile) (int, error) {
	inNamespace, err := selects(p.Spec.NamespaceSelector)
	if err != nil {
		return -1, fmt.Errorf("its namespaceSelector: %w", err)
	}
	selected, err := selects(p.Spec.Selector)
	if err != nil {
		return -1, fmt.Errorf("its selector: %w", err)
	}
	percent, err := percentOf(p.Spec.Probability)
	switch {
	case err != nil:
		return -1, fmt.Errorf("its probability: %w", err)
	case !selected.Matches(labels.Set(r.Pod.Labels)):
		return -1, nil
	case !inNamespace.Empty() && r.Namespace == nil:
		return -1, fmt.Errorf("the labels of the pod's namespace are not known")
	case !inNamespace.Empty() && !inNamespace.Matches(labels.Set(r.Namespace.Labels)):
		return -1, nil
	}
	return percent, nil
}

func (r Request) draw() float64 {
	if r.Draw == nil {
		return 0
	}
	return r.Draw()
}

// selects converts the selector of a profile. A missing or empty selector
// selects all objects.
func selects(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// Percent returns the probability, in percent, with which a profile changes a
// pod that it selects.
func Percent(p configv1alpha1.ClusterColocationProfile) (int, error) {
	return percentOf(p.Spec.Probability)
}

// percentOf reads a probability: "30%" or 30. A missing probability is 100.
func percentOf(p *intstr.IntOrString) (int, error) {
	if p == nil {
		return 100, nil
	}
	n := p.IntValue()
	if p.Type == intstr.String {
		var err error
		if n, err = strconv.Atoi(strings.TrimSuffix(p.StrVal, "%")); err != nil || !strings.HasSuffix(p.StrVal, "%") {
			return 0, fmt.Errorf("%s: want a percentage such as 30%%", quoteText(p.StrVal))
		}
	}
	if n < 0 || n > 100 {
		return 0, fmt.Errorf("%d: want 0%% to 100%%", n)
	}
	return n, nil
}

// apply changes the pod as the profile says.
func apply(p *corev1.Pod, profile configv1alpha1.ClusterColocationProfile, classes map[string]schedulingv1.PriorityClass, v *Verdict) {
	s := profile.Spec
	set(&p.Labels, s.Labels)
	set(&p.Annotations, s.Annotations)
	copyKeys(p.Labels, s.LabelKeysMapping)
	copyKeys(p.Annotations, s.AnnotationKeysMapping)
	for key, suffix := range s.LabelSuffixes {
		if value, has := p.Labels[key]; has {
			p.Labels[key] = value + suffix
		}
	}
	if s.SchedulerName != "" {
		p.Spec.SchedulerName = s.SchedulerName
	}
	if s.QoSClass != "" {
		set(&p.Labels, map[string]string{kube.LabelQOSClass: s.QoSClass})
	}
	if name := s.PriorityClassName; name != "" {
		class, known := classes[name]
		if !known {
			v.refuse("spec.priorityClassName", "ClusterColocationProfile %s gives the pod the priority class %s, which does not exist: create it, or name another in the profile", profile.Name, quoteText(name))
			return
		}
		// The API server derives all three fields from the priority class, and
		// refuses other values.
		p.Spec.PriorityClassName, p.Spec.Priority = name, &class.Value
		p.Spec.PreemptionPolicy = class.PreemptionPolicy
	}
	if s.KoordinatorPriority != nil {
		set(&p.Labels, map[string]string{kube.LabelSubPriority: strconv.Itoa(int(*s.KoordinatorPriority))})
	}
	if profile.Annotations[configv1alpha1.SkipUpdateResources] == "true" {
		set(&p.Annotations, map[string]string{configv1alpha1.SkipUpdateResources: "true"})
	}
	if len(s.Patch.Raw) > 0 {
		if err := patch(p, s.Patch.Raw); err != nil {
			v.refuse("metadata", "the patch of ClusterColocationProfile %s cannot be applied: %v: correct the profile", profile.Name, err)
		}
	}
}

// set adds entries to a map. It creates a missing map.
func set(to *map[string]string, entries map[string]string) {
	if len(entries) > 0 && *to == nil {
		*to = map[string]string{}
	}
	maps.Copy(*to, entries)
}

// copyKeys copies entries within a map. mapping maps the key of each entry to
// the key of its copy. A missing entry is not copied.
func copyKeys(of map[string]string, mapping map[string]string) {
	for _, from := range slices.Sorted(maps.Keys(mapping)) {
		if value, has := of[from]; has {
			of[mapping[from]] = value
		}
	}
}

// patch applies a strategic merge patch. The name and the namespace of the pod
// do not change.
func patch(p *corev1.Pod, raw []byte) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	patched, err := strategicpatch.StrategicMergePatch(text, raw, corev1.Pod{})
	if err != nil {
		return err
	}
	if err := quantity.CheckPod(patched); err != nil {
		return err
	}
	var after corev1.Pod
	if err := json.Unmarshal(patched, &after); err != nil {
		return err
	}
	after.Name, after.GenerateName, after.Namespace, after.UID = p.Name, p.GenerateName, p.Namespace, p.UID
	*p = after
	return nil
}

// ValidateProfile checks a profile that a user writes. classes are the priority
// classes of the cluster by name.
func ValidateProfile(p *configv1alpha1.ClusterColocationProfile, classes map[string]schedulingv1.PriorityClass) Verdict {
	var v Verdict
	for field, s := range map[string]*metav1.LabelSelector{"spec.namespaceSelector": p.Spec.NamespaceSelector, "spec.selector": p.Spec.Selector} {
		if _, err := selects(s); err != nil {
			v.refuse(field, "%v", err)
		}
	}
	if _, err := percentOf(p.Spec.Probability); err != nil {
		v.refuse("spec.probability", "%v", err)
	}
	if c := p.Spec.QoSClass; c != "" && !slices.Contains(node.Classes, node.Class(c)) {
		v.refuse("spec.qosClass", "%s: want one of LSE, LSR, LS, BE, SYSTEM", quoteText(c))
	}
	if p.Spec.QoSClass == string(node.System) || p.Spec.Labels[kube.LabelQOSClass] == string(node.System) {
		v.warn(Refusing, "", `class SYSTEM: pods that match are refused, except in kube-system and in namespaces with the label %s%s: "true"`, tenant.LabelPrefix, tenant.System)
	}
	if name := p.Spec.PriorityClassName; name != "" {
		if _, known := classes[name]; !known {
			v.warn(Refusing, "", "priority class %s does not exist yet: pods that match are refused until it exists", quoteText(name))
		}
	}
	if text := p.Spec.Annotations[kube.AnnotationObjective]; text != "" {
		_, faults := config.ReadObjective(text, node.Class(p.Spec.QoSClass))
		for _, f := range faults {
			field := "spec.annotations[" + kube.AnnotationObjective + "]"
			if f.Field != "" {
				field += "." + f.Field
			}
			v.refuse(field, "%s", f.Problem)
		}
	}
	if p.Spec.SchedulerName == koordScheduler {
		v.warn(Pending, "spec.schedulerName", "%s", withoutKoordScheduler)
	}
	if len(p.Spec.Patch.Raw) > 0 {
		if err := patch(&corev1.Pod{}, p.Spec.Patch.Raw); err != nil {
			v.refuse("spec.patch", "%v: want a strategic merge patch of a pod", err)
		}
	}
	slices.SortFunc(v.Refusals, func(a, b Refusal) int { return strings.Compare(a.Field, b.Field) })
	return v
}
