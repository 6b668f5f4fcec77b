package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// TestAPodThatTheWebhookDidNotSeeIsMissedIfItsClassWouldDiffer checks each way
// in which a profile can change the class of a pod. It also checks profiles
// that do not change the class.
func TestAPodThatTheWebhookDidNotSeeIsMissedIfItsClassWouldDiffer(t *testing.T) {
	spark := &metav1.LabelSelector{MatchLabels: map[string]string{"job": "spark"}}
	be := profiled("spark", func(s *configv1alpha1.ClusterColocationProfileSpec) { s.Selector, s.QoSClass = spark, "BE" })
	label := profiled("label-only", func(s *configv1alpha1.ClusterColocationProfileSpec) { s.Labels = map[string]string{"x": "y"} })
	cheap := profiled("cheap", func(s *configv1alpha1.ClusterColocationProfileSpec) {
		s.Selector, s.PriorityClassName = spark, "koord-batch"
	})
	half, never := intstr.FromString("50%"), intstr.FromInt32(0)
	some := profiled("some", func(s *configv1alpha1.ClusterColocationProfileSpec) {
		s.Selector, s.QoSClass, s.Probability = spark, "BE", &half
	})
	none := profiled("none", func(s *configv1alpha1.ClusterColocationProfileSpec) {
		s.Selector, s.QoSClass, s.Probability = spark, "BE", &never
	})
	own := "requests: {cpu: 1, memory: 1Gi}"
	for name, tc := range map[string]struct {
		labels, annotations, resources string
		profiles                       []configv1alpha1.ClusterColocationProfile
		want                           string
	}{
		"a service that a profile makes BE":     {"job: spark", "", own, []configv1alpha1.ClusterColocationProfile{label, be}, "LS BE spark"},
		"a batch priority makes BE":             {"job: spark", "", own, []configv1alpha1.ClusterColocationProfile{cheap}, "LS BE cheap"},
		"a part of the pods":                    {"job: spark", "", own, []configv1alpha1.ClusterColocationProfile{some}, "LS BE some"},
		"none of the pods":                      {"job: spark", "", own, []configv1alpha1.ClusterColocationProfile{none}, ""},
		"no profile matches":                    {"job: web", "", own, []configv1alpha1.ClusterColocationProfile{be}, ""},
		"the class stays":                       {"job: spark", "", own, []configv1alpha1.ClusterColocationProfile{label}, ""},
		"BestEffort is BE with or without":      {"job: spark", "", "", []configv1alpha1.ClusterColocationProfile{be}, ""},
		"the webhook has seen it, without luck": {"job: spark", AnnotationProfiles + ": -some", own, []configv1alpha1.ClusterColocationProfile{some}, ""},
	} {
		classes := map[string]schedulingv1.PriorityClass{"koord-batch": {ObjectMeta: metav1.ObjectMeta{Name: "koord-batch"}, Value: 5500}}
		p := pod(t, tc.labels, tc.annotations, tc.resources)
		m, missed := ApplyMissed(Request{Pod: p, Namespace: &corev1.Namespace{}, Profiles: tc.profiles, PriorityClasses: classes})
		got := ""
		if missed {
			got = string(m.Was) + " " + string(m.Would) + " " + m.Profiles[0]
		}
		if got != tc.want || len(m.Profiles) > 1 {
			t.Errorf("%s: %q %v, want %q", name, got, m.Profiles, tc.want)
		}
		if p.Labels["job"] == "spark" && p.Labels["koordinator.sh/qosClass"] != "" {
			t.Errorf("%s: the pod was changed", name)
		}
	}
}
