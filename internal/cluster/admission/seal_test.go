package admission

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
)

// TestAForeignListOfProfilesKeepsNoneAway checks that only the webhook's own
// list of profiles, from the same request, replaces their evaluation.
func TestAForeignListOfProfilesKeepsNoneAway(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	half := intstr.FromString("50%")
	profiles := []configv1alpha1.ClusterColocationProfile{profiled("batch", func(s *configv1alpha1.ClusterColocationProfileSpec) { s.QoSClass, s.Probability = "BE", &half })}
	admitAt := func(at time.Time, key string, draw float64, p *corev1.Pod) (*corev1.Pod, Verdict) {
		return Mutate(Request{Pod: p, Profiles: profiles, Draw: func() float64 { return draw }, Seal: func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key+text))) }, Now: at})
	}
	named := func(name, annotations string) *corev1.Pod {
		p := pod(t, "", annotations, own)
		p.GenerateName = name
		return p
	}
	once, v := admitAt(now, "key", 0.9, named("web-", ""))
	if once.Annotations[AnnotationProfiles] != "-batch" || kube.Class(once) != "" || len(v.Warnings) > 0 {
		t.Fatalf("annotations %v, warnings %q", once.Annotations, v.Warnings)
	}
	again, v := admitAt(now.Add(30*time.Second), "key", 0, once)
	a, _ := json.Marshal(once)
	if b, _ := json.Marshal(again); string(a) != string(b) || len(v.Warnings) > 0 {
		t.Errorf("after one call\n%s\nafter two\n%s\nwarnings %q", a, b, v.Warnings)
	}
	copied := func(name string) *corev1.Pod {
		p := named(name, "")
		p.Annotations = map[string]string{AnnotationProfiles: once.Annotations[AnnotationProfiles], AnnotationSeal: once.Annotations[AnnotationSeal]}
		return p
	}
	edited := copied("web-")
	edited.Annotations[AnnotationProfiles] = ""
	for name, x := range map[string]struct {
		pod *corev1.Pod
		at  time.Time
		key string
	}{
		"a list without a seal":   {named("web-", AnnotationProfiles+": -batch"), now, "key"},
		"an empty list":           {named("web-", AnnotationProfiles+": ''"), now, "key"},
		"a broken seal":           {named("web-", AnnotationProfiles+": -batch, "+AnnotationSeal+": x"), now, "key"},
		"the list of another pod": {copied("db-"), now, "key"},
		"the list of an old pod":  {copied("web-"), now.Add(2 * time.Minute), "key"},
		"another list":            {edited, now, "key"},
		"another key":             {copied("web-"), now, "other"},
	} {
		p, v := admitAt(x.at, x.key, 0, x.pod)
		warned := slices.ContainsFunc(v.Warnings, func(w Warning) bool { return w.Code == Removed })
		if kube.Class(p) != "BE" || p.Annotations[AnnotationProfiles] != "batch" || !warned {
			t.Errorf("%s: class %q, annotations %v, warnings %q", name, kube.Class(p), p.Annotations, v.Warnings)
		}
	}
	profiles = nil
	if p, _ := admitAt(now.Add(time.Hour), "key", 0, copied("web-")); len(p.Annotations) > 0 {
		t.Errorf("without profiles, the pod has the annotations %v", p.Annotations)
	}
}

// TestAListOfProfilesCountsForItsOwnPod checks that the search for missed pods
// does not pass over a pod whose list was copied from another pod.
func TestAListOfProfilesCountsForItsOwnPod(t *testing.T) {
	made := time.Unix(1_700_000_000, 0)
	be := profiled("batch", func(s *configv1alpha1.ClusterColocationProfileSpec) { s.QoSClass = "BE" })
	for name, x := range map[string]struct {
		seal    string
		decided bool
	}{
		"none, as from before seals": {"", true},
		"of this pod":                {"1700000002.ab", true},
		"of an older pod":            {"1699990000.ab", false},
		"of no form":                 {"x", false},
	} {
		p := pod(t, "", AnnotationProfiles+": -batch", own)
		p.CreationTimestamp = metav1.NewTime(made)
		if x.seal != "" {
			p.Annotations[AnnotationSeal] = x.seal
		}
		if _, missed := ApplyMissed(Request{Pod: p, Namespace: &corev1.Namespace{}, Profiles: []configv1alpha1.ClusterColocationProfile{be}}); missed == x.decided || Decided(p.Annotations, made) != x.decided {
			t.Errorf("a seal %s: missed %v, want %v", name, missed, !x.decided)
		}
	}
}
