package admission

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
)

// TestAPodThatIsLeftAloneIsNeitherChangedNorRefused creates pods that the webhook
// would otherwise translate or refuse.
func TestAPodThatIsLeftAloneIsNeitherChangedNorRefused(t *testing.T) {
	home := &corev1.Namespace{}
	home.Name, home.Labels = "shop", map[string]string{kube.LabelIgnore: "true"}
	profile := configv1alpha1.ClusterColocationProfile{Spec: configv1alpha1.ClusterColocationProfileSpec{QoSClass: "BE"}}
	allowed := tenant.Namespace{Name: "shop", Labels: map[string]string{"allow.tenon.sh/ignore": "true"}}
	for name, p := range map[string]*corev1.Pod{
		"translated":      pod(t, be, "", "limits: {cpu: 2, memory: 1Gi}"),
		"refused":         pod(t, be, "", "limits: {cpu: 2, kubernetes.io/batch-cpu: 1k}"),
		"with a fault":    pod(t, be, "koordinator.sh/memoryQOS: x", ""),
		"asks for CPUs":   pod(t, "koordinator.sh/qosClass: LSR", "", "limits: {cpu: 1.5}"),
		"a forged choice": pod(t, "koordinator.sh/qosClass: LSR", "tenon.sh/cpus: '{}'", "limits: {cpu: 2}"),
	} {
		r := Request{Pod: p, Profiles: []configv1alpha1.ClusterColocationProfile{profile}, Scheduler: "tenon-scheduler"}
		if changed, v := Mutate(r); reflect.DeepEqual(changed, p) && len(v.Warnings) == 0 && ValidateCreate(changed, allowed, false, nil).Allowed() {
			t.Fatalf("%s: the webhook leaves it alone without the label, too", name)
		}
		labelled := p.DeepCopy()
		labelled.Labels[kube.LabelIgnore] = "true"
		// The label of the namespace makes the label of the pod.
		for _, x := range []Request{{Pod: labelled}, {Pod: p, Namespace: home}} {
			x.Profiles, x.Scheduler = r.Profiles, r.Scheduler
			changed, v := Mutate(x)
			judged := ValidateCreate(changed, allowed, false, nil)
			if !reflect.DeepEqual(changed, labelled) || len(v.Warnings)+len(judged.Warnings) > 0 || !v.Allowed() || !judged.Allowed() {
				t.Errorf("%s: %v, refused %q %q, warnings %v %v", name, changed.ObjectMeta, v.Message(), judged.Message(), v.Warnings, judged.Warnings)
			}
		}
		if update := ValidateUpdate(p, labelled, allowed); !update.Allowed() {
			t.Errorf("%s: the label of a pod that runs: %s", name, update.Message())
		}
		for _, v := range []Verdict{ValidateCreate(labelled, tenant.Namespace{Name: "team"}, false, nil), ValidateUpdate(p, labelled, tenant.Namespace{Name: "team"})} {
			if v.Allowed() || v.Refusals[0].Field != "metadata.labels[tenon.sh/ignore]" {
				t.Errorf("%s: without the right: %v", name, v.Refusals)
			}
		}
	}
	byProfile := configv1alpha1.ClusterColocationProfile{Spec: configv1alpha1.ClusterColocationProfileSpec{Labels: map[string]string{kube.LabelIgnore: "true"}}}
	if changed, _ := Mutate(Request{Pod: pod(t, be, "", "limits: {cpu: 2}"), Profiles: []configv1alpha1.ClusterColocationProfile{byProfile}}); changed.Annotations[kube.AnnotationExtended] != "" || !kube.IsIgnored(changed) {
		t.Errorf("a profile with the label: %v", changed)
	}
	running := pod(t, "koordinator.sh/qosClass: LSR", "", "limits: {cpu: 2}, requests: {cpu: 2}")
	running.Spec.NodeName = "node-1"
	after := running.DeepCopy()
	after.Labels[kube.LabelIgnore] = "true"
	if v := ValidateUpdate(running, after, allowed); len(v.Warnings) != 1 || v.Warnings[0].Code != GivenUp || v.Warnings[0].Field != "metadata.labels[tenon.sh/ignore]" {
		t.Errorf("own CPUs: %v, want a warning that the pod gives them up", v.Warnings)
	}
	if v := ValidateUpdate(after, running, tenant.Namespace{Name: "team", Labels: map[string]string{"allow.tenon.sh/own-cpus": "false"}}); v.Allowed() {
		t.Error("a pod that is not left alone any more gets own CPUs without the right to them")
	}
}

// TestALabelOfANamespaceSaysWhatItLeavesOut sets and keeps the label.
func TestALabelOfANamespaceSaysWhatItLeavesOut(t *testing.T) {
	on, off := map[string]string{kube.LabelIgnore: "true"}, map[string]string{kube.LabelIgnore: "false"}
	for name, x := range map[string]struct {
		old, now map[string]string
		warns    bool
	}{
		"set": {nil, on, true}, "set again": {off, on, true}, "kept": {on, on, false}, "unset": {on, nil, false}, "none": {nil, off, false},
	} {
		v := ValidateNamespace(metav1.ObjectMeta{Labels: x.old}, metav1.ObjectMeta{Labels: x.now}, false)
		if warns := len(v.Warnings) == 1 && v.Warnings[0].Code == NewPods; warns != x.warns || !v.Allowed() {
			t.Errorf("%s: %v, %v", name, v.Refusals, v.Warnings)
		}
	}
}
