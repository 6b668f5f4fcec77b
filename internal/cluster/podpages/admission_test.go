package podpages

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// TestWhatTheAPIServerAnswersIsTheAnswer sets the API server's answer to a pod.
func TestWhatTheAPIServerAnswersIsTheAnswer(t *testing.T) {
	for name, x := range map[string]struct {
		text   string
		change func(*manifest.Wanted)
		want   []string
		absent string
		fits   bool
	}{
		"it refuses a pod": {
			ownPod, func(w *manifest.Wanted) { w.Admission.Refused = `admission webhook "x" denied the request: no` },
			[]string{"\nshop/p: the API server refuses it: admission webhook \"x\" denied the request: no\n", "refused\n", "0 of 1 pod would", "The API server was asked"}, "would wait", false,
		},
		"it refuses a template": {
			"kind: Deployment\nmetadata: {name: d, namespace: shop}\nspec: {replicas: 3, template: {metadata: {annotations: {cpu-policy: static-brust}}, spec: {containers: [{name: c}]}}}",
			func(w *manifest.Wanted) { w.Admission.Refused = "no" },
			[]string{"shop/d  -         -     -       -     refused\n\nshop/d: the API server refuses it: no\n", "0 of 3 pods"}, "not as written", false,
		},
		"it makes another pod of it": {
			ownPod, func(w *manifest.Wanted) {
				w.Admission.Pod = w.Pod.DeepCopy()
				w.Admission.Pod.Annotations = map[string]string{admission.AnnotationProfiles: "plain,-other"}
				w.Admission.Warnings = []string{"be careful"}
			},
			[]string{"no CPUs of its own", "p: as ClusterColocationProfile plain makes it", "the API server warns: p: be careful\n"}, "other", true,
		},
		"it warns of what is known": {
			strings.Replace(ownPod, "cpuset-scheduler: 'true'", "cpu-policy: static-burst", 1), func(w *manifest.Wanted) {
				w.Admission.Pod = w.Pod.DeepCopy()
				w.Admission.Warnings = []string{`metadata.annotations[cpu-policy]: static-burst counts with cpuset-scheduler: "true" only`}
			},
			[]string{"not as written: p: cpu-policy: static-burst counts with"}, "warns", true,
		},
		"it was not asked": {
			ownPod, func(w *manifest.Wanted) {
				w.Admission.Unasked = "admission in namespace shop, because you may not create pods there"
			},
			[]string{"Not looked at: admission in namespace shop, because you may not create pods there.\n"}, "The API server was asked", true,
		},
	} {
		m := manifests(t, x.text)
		x.change(&m.Wanted[0])
		text, fits := fit(scene(t), m.Wanted, Webhook{})
		for _, want := range x.want {
			if fits != x.fits || !strings.Contains(text, want) || strings.Contains(text, x.absent) {
				t.Errorf("%s: fits %v; want %q and not %q in\n%s", name, fits, want, x.absent, text)
			}
		}
	}
}

// TestAPodThatNamesItsNodeHasNoOther checks pods with nodeName. They need no
// running scheduler, and fewer taints apply to them.
func TestAPodThatNamesItsNodeHasNoOther(t *testing.T) {
	for node, x := range map[string]struct {
		cpus, want string
		fits       bool
	}{
		"nonode": {"2", "shop/p would not get what it asks for on the node that it names:\n  node nonode, which the pod names, does not exist\n", false},
		"node-1": {"9", "names:\n  1 node: insufficient cpu: requests 9, 2 of 16 CPUs left; no room for own CPUs: pods with seats or pools need the open ones\n  the kubelet would reject the pod (OutOfcpu)\n", false},
		"node-3": {"2", "node-3  ", true}, // with a taint
	} {
		m := manifests(t, strings.ReplaceAll(strings.Replace(ownPod, "spec: {", "spec: {schedulerName: none, nodeName: "+node+", ", 1), "cpu: 2", "cpu: "+x.cpus))
		if text, fits := fit(scene(t), m.Wanted, Webhook{}, schedulers.Scheduler{Name: "none"}); fits != x.fits || !strings.Contains(text, x.want) {
			t.Errorf("%s: fits %v; want %q in\n%s", node, fits, x.want, text)
		}
	}
	lost := waiting("p", "", time.Minute)
	lost.Spec.NodeName = "nonode"
	page, _ := New(nil, []corev1.Pod{lost}, noon).ExplainPod("shop", "p", schedulers.Seen{})
	if text := page.Text(); page.State != PodLost || !strings.Contains(text, "It names node nonode, which does not exist.") {
		t.Error(text)
	}
}

// TestAProfileWithAProbabilityIsApplied checks that fit asks again only for
// profiles with a probability.
func TestAProfileWithAProbabilityIsApplied(t *testing.T) {
	var some, all configv1alpha1.ClusterColocationProfile
	half := intstr.FromString("50%")
	some.Name, some.Spec.QoSClass, some.Spec.Probability = "some", "LSR", &half
	all.Name = "all"
	by := Webhook{Profiles: []configv1alpha1.ClusterColocationProfile{some, all}}
	p := manifests(t, ownPod).Wanted[0].Pod
	for drawn, want := range map[string]string{"all,some": "all,some", "-some,all": "all,some", "all": "", "": ""} {
		admitted := p.DeepCopy()
		admitted.Annotations[admission.AnnotationProfiles] = drawn
		got := by.Drawn(&p, admitted)
		if (got != nil) != (want != "") || got != nil && got.Annotations[admission.AnnotationProfiles] != want {
			t.Errorf("%q: %+v", drawn, got)
		}
	}
}
