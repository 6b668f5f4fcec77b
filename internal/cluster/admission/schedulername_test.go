package admission

import (
	"slices"
	"testing"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// TestPodsOfKoordinatorsSchedulerAreWarnedAboutOrTranslated checks pods with
// the scheduler koord-scheduler, from their manifest or from a profile. Most of
// Koordinator's examples have it. Without that scheduler in the cluster, they
// stay Pending.
func TestPodsOfKoordinatorsSchedulerAreWarnedAboutOrTranslated(t *testing.T) {
	of := func(name string) *configv1alpha1.ClusterColocationProfile {
		p := &configv1alpha1.ClusterColocationProfile{}
		p.Name, p.Spec.SchedulerName = "spark", name
		return p
	}
	warned := func(v Verdict, code WarningCode) bool {
		return slices.ContainsFunc(v.Warnings, func(w Warning) bool { return w.Code == code && w.Field == "spec.schedulerName" })
	}
	p := pod(t, "", "", own)
	p.Spec.SchedulerName = "koord-scheduler"
	for _, r := range []Request{{Pod: p}, {Pod: pod(t, be, "", own), Profiles: []configv1alpha1.ClusterColocationProfile{*of("koord-scheduler")}}} {
		got, v := Mutate(r)
		if got.Spec.SchedulerName != "koord-scheduler" || !warned(v, Pending) {
			t.Errorf("%s, warnings %q", got.Spec.SchedulerName, v.Warnings)
		}
		r.SchedulerNames = map[string]string{"koord-scheduler": "default-scheduler"}
		got, v = Mutate(r)
		if got.Spec.SchedulerName != "default-scheduler" || warned(v, Pending) || !warned(v, Replaced) {
			t.Errorf("translated: %s, warnings %q", got.Spec.SchedulerName, v.Warnings)
		}
	}
	if v := ValidateProfile(of("koord-scheduler"), nil); !v.Allowed() || !warned(v, Pending) {
		t.Errorf("the profile: %+v", v)
	}
	if _, v := Mutate(Request{Pod: pod(t, "", "", own)}); len(v.Warnings) > 0 {
		t.Errorf("a pod of no special scheduler: %q", v.Warnings)
	}
}

// TestAClassThatIsAnAnnotationIsAWarning checks pods from a page of
// Koordinator's manual. Their class is in an annotation, but Koordinator itself
// reads only the label.
func TestAClassThatIsAnAnnotationIsAWarning(t *testing.T) {
	const want = `metadata.annotations[koordinator.sh/qosClass]: "BE" has no effect as an annotation, as in Koordinator: want it as a label`
	p, v := admit(Request{Pod: pod(t, "", be, own)})
	if !v.Allowed() || !slices.Contains(v.Texts(), want) || p.Labels["koordinator.sh/qosClass"] != "" {
		t.Errorf("%v, %+v", p.Labels, v)
	}
	if _, v := admit(Request{Pod: pod(t, be, be, own)}); slices.Contains(v.Texts(), want) {
		t.Errorf("beside the label: %q", v.Warnings)
	}
}
