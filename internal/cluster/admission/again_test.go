package admission

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
)

func TestProfilesActOnceHoweverOftenTheAPIServerCalls(t *testing.T) {
	half := intstr.FromString("50%")
	calls, lots := 0, []float64{0.9, 0.1, 0.1, 0.1}
	profiles := []configv1alpha1.ClusterColocationProfile{
		profiled("suffix", func(s *configv1alpha1.ClusterColocationProfileSpec) {
			s.LabelSuffixes, s.Labels = map[string]string{"app": "-colo"}, map[string]string{"colocated": "yes"}
		}),
		profiled("chain", func(s *configv1alpha1.ClusterColocationProfileSpec) {
			s.LabelKeysMapping = map[string]string{"a": "b", "c": "a"}
		}),
		profiled("lots", func(s *configv1alpha1.ClusterColocationProfileSpec) {
			s.Probability, s.Labels = &half, map[string]string{"drawn": "yes"}
		}),
		profiled("after", func(s *configv1alpha1.ClusterColocationProfileSpec) {
			s.Selector, s.Labels = &metav1.LabelSelector{MatchLabels: map[string]string{"colocated": "yes"}}, map[string]string{"again": "yes"}
		}),
	}
	draw := func() float64 { calls++; return lots[calls-1] }
	once, _ := Mutate(Request{Pod: pod(t, "app: web, a: one, c: three", "", own), Profiles: profiles, Draw: draw})
	twice, _ := Mutate(Request{Pod: once, Profiles: profiles, Draw: draw})
	if once.Labels["app"] != "web-colo" || once.Labels["drawn"] != "" || once.Annotations[AnnotationProfiles] != "chain,-lots,suffix" {
		t.Errorf("after one call: labels %v, annotations %v", once.Labels, once.Annotations)
	}
	a, _ := json.Marshal(once)
	if b, _ := json.Marshal(twice); string(a) != string(b) || calls != 1 {
		t.Errorf("%d random numbers drawn; after one call\n%s\nafter two\n%s", calls, a, b)
	}
}

func TestAServiceOfMiddlePriorityKeepsItsAmounts(t *testing.T) {
	labelled := profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) { s.Labels = map[string]string{"x": "y"} })
	p, _ := Mutate(Request{Pod: pod(t, "koordinator.sh/priority-class: koord-mid", "", own), Profiles: []configv1alpha1.ClusterColocationProfile{labelled}})
	if q := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; q.String() != "1500m" {
		t.Errorf("a profile that only adds a label changed the resources to %v", p.Spec.Containers[0].Resources)
	}
}

func TestReplacedResourcesAreInTheUnitOfTheNewName(t *testing.T) {
	for _, tc := range []struct{ pairs, from, want string }{
		{"cpu:kubernetes.io/batch-cpu", "cpu: 2", "kubernetes.io/batch-cpu 2k"},
		{"cpu:koordinator.sh/batch-cpu", "cpu: 1500m", "kubernetes.io/batch-cpu 1500"},
		{"cpu:alibabacloud.com/reclaimed", "cpu: 2", "kubernetes.io/batch-cpu 2k"},
		{"cpu:koordinator.sh/batch-cpu,koordinator.sh/batch-cpu:kubernetes.io/batch-cpu", "cpu: 2", "kubernetes.io/batch-cpu 2k"},
		{"memory:koordinator.sh/batch-memory", "memory: 1Gi", "kubernetes.io/batch-memory 1Gi"},
	} {
		once, v := admit(Request{Pod: pod(t, be, AnnotationReplace+": '"+tc.pairs+"'", "limits: {"+tc.from+"}")})
		twice, _ := Mutate(Request{Pod: once})
		name, amount, _ := strings.Cut(tc.want, " ")
		for _, p := range []*corev1.Pod{once, twice} {
			if q := p.Spec.Containers[0].Resources.Limits[corev1.ResourceName(name)]; q.String() != amount || !v.Allowed() {
				t.Errorf("%s of %s: %v %s, want %s", tc.pairs, tc.from, p.Spec.Containers[0].Resources, v.Message(), tc.want)
			}
		}
	}
	p, _ := Mutate(Request{Pod: pod(t, "", AnnotationReplace+": 'kubernetes.io/batch-cpu:cpu'", "limits: {kubernetes.io/batch-cpu: 2500}")})
	if q := p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]; q.MilliValue() != 2500 {
		t.Errorf("2500 thousandths are %s CPUs", q.String())
	}
}

// TestADefaultDoesNotReplaceWhatWasReplaced runs the webhook twice. The first
// run renames a resource. Then a LimitRange of the namespace adds a default
// under the old name, and the API server calls the webhook again.
func TestADefaultDoesNotReplaceWhatWasReplaced(t *testing.T) {
	replaced := AnnotationReplace + ": 'cpu:kubernetes.io/batch-cpu'"
	p, _ := Mutate(Request{Pod: pod(t, be, replaced, "requests: {cpu: 2}")})
	p.Annotations[annotationLimitRange] = "LimitRanger plugin set: cpu request for container job"
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("100m")
	p, v := admit(Request{Pod: p})
	r := p.Spec.Containers[0].Resources.Requests
	cpu, left := r[kube.BatchCPU], r[corev1.ResourceCPU]
	if cpu.String() != "2k" || !left.IsZero() || !v.Allowed() {
		t.Errorf("%v, %s", r, v.Message())
	}
}

// TestARequestOfZeroStays checks that a request of 0 does not become a request
// of the limit, and that a default of a LimitRange does not replace it.
func TestARequestOfZeroStays(t *testing.T) {
	const zero = "requests: {cpu: 0, memory: 0}, limits: {cpu: 4, memory: 8Gi}"
	for _, annotations := range []string{"", AnnotationReplace + ": 'cpu:kubernetes.io/batch-cpu,memory:kubernetes.io/batch-memory'"} {
		p, v := admit(Request{Pod: pod(t, be, annotations, zero)})
		set(&p.Annotations, map[string]string{annotationLimitRange: "LimitRanger plugin set: cpu, memory request for container job"})
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("100m")
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
		p, again := admit(Request{Pod: p})
		r := p.Spec.Containers[0].Resources
		limit := r.Limits[kube.BatchCPU]
		for _, n := range batch.both() {
			if q, has := r.Requests[n]; !has || !q.IsZero() || limit.String() != "4k" || !v.Allowed() || !again.Allowed() {
				t.Errorf("%s %q: %v, messages %q, %q", n, annotations, r, v.Message(), again.Message())
			}
		}
	}
}

// TestDefaultsOfSeveralLimitRangesAreSetToZero checks that defaults that the
// annotation does not list count as defaults, too. LimitRanger writes the
// annotation anew for each LimitRange of the namespace.
func TestDefaultsOfSeveralLimitRangesAreSetToZero(t *testing.T) {
	ranged := func(requests string) *corev1.Pod {
		return pod(t, be, annotationLimitRange+`: "LimitRanger plugin set: ephemeral-storage request for container job"`, requests)
	}
	const both = batch2 + ", kubernetes.io/batch-memory: 1Gi"
	for _, resources := range []string{
		"requests: {cpu: 500m, memory: 64Mi, " + both + "}, limits: {" + both + "}",
		"requests: {" + both + "}, limits: {cpu: 500m, memory: 64Mi, " + both + "}",
	} {
		p, v := admit(Request{Pod: ranged(resources)})
		twice, _ := Mutate(Request{Pod: p})
		if !v.Allowed() || kube.QOSClass(p) != corev1.PodQOSBestEffort || len(v.Warnings) < 2 || v.Warnings[0].Code != Replaced {
			t.Errorf("%s: %v, message %q, warnings %q", resources, p.Spec.Containers[0].Resources, v.Message(), v.Warnings)
		}
		if a, b := p.Spec.Containers[0].Resources, twice.Spec.Containers[0].Resources; a.String() != b.String() {
			t.Errorf("%s: after one call %v, after two %v", resources, a, b)
		}
	}
	// An amount without a batch resource of its kind may be the author's own.
	_, v := admit(Request{Pod: ranged("requests: {memory: 64Mi, kubernetes.io/batch-cpu: 1k}")})
	if !strings.Contains(v.Message(), "write kubernetes.io/batch-memory: 64Mi instead (a LimitRange of the namespace may have put it there)") {
		t.Errorf("message %q", v.Message())
	}
}

// TestOnlyImposedAmountsStayBesideBatchResources checks which amounts a
// container with batch resources keeps in a namespace with a minimum for CPU.
func TestOnlyImposedAmountsStayBesideBatchResources(t *testing.T) {
	ranges := Ranges{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{"cpu": resource.MustParse("0.1")}, DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse("0.1")},
	}}}}}
	given := annotationLimitRange + `: "LimitRanger plugin set: cpu request for container job"`
	for _, x := range []struct{ annotation, requests, want string }{
		{given, "cpu: 100m, kubernetes.io/batch-cpu: 1k", ""},
		{"", "cpu: 100m, kubernetes.io/batch-cpu: 1k", ""},
		{"", "cpu: 2, kubernetes.io/batch-cpu: 1k", "write kubernetes.io/batch-cpu: 2k instead"},
		{given, "cpu: 100m, kubernetes.io/batch-memory: 1Gi", "write kubernetes.io/batch-cpu: 100 instead (a LimitRange"},
		{"", "memory: 64Mi, kubernetes.io/batch-memory: 1Gi", "write kubernetes.io/batch-memory: 64Mi instead"},
	} {
		p, v := admit(Request{Pod: pod(t, be, x.annotation, "requests: {"+x.requests+"}"), Ranges: ranges})
		if v.Allowed() != (x.want == "") || !strings.Contains(v.Message(), x.want) {
			t.Errorf("%s: message %q, want %q", x.requests, v.Message(), x.want)
		}
		warned := slices.ContainsFunc(v.Warnings, func(w Warning) bool { return w.Code == Uncounted })
		if q := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; x.want == "" && (q.MilliValue() != 100 || !warned) {
			t.Errorf("%s: %v, warnings %q", x.requests, p.Spec.Containers[0].Resources, v.Warnings)
		}
	}
}

func TestABestEffortPodThatKeepsItsAmountsNeedsLimitsInEachContainer(t *testing.T) {
	const keep = `config.koordinator.sh/skip-update-resources: "true"`
	beside := func(resources string) *corev1.Pod {
		p := pod(t, be, keep, "limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 2, memory: 1Gi}")
		other := pod(t, be, keep, resources).Spec.Containers[0]
		other.Name = "other"
		p.Spec.Containers = append(p.Spec.Containers, other)
		return p
	}
	for resources, want := range map[string]string{
		"limits: {cpu: 1, memory: 1Gi}": "",
		"":                              "spec.containers[other].resources.limits[cpu]: missing",
		"limits: {cpu: 1}":              "spec.containers[other].resources.limits[memory]: missing",
		"limits: {" + batch2 + "}":      "spec.containers[job].resources.limits[cpu]: another container of this pod has batch resources",
	} {
		if _, v := admit(Request{Pod: beside(resources)}); !strings.Contains(v.Message(), want) || v.Allowed() != (want == "") {
			t.Errorf("beside %q: message %q, want %q", resources, v.Message(), want)
		}
	}
}

// TestAmountsThatAnotherWebhookAddsAreRefused adds cpu and memory to a translated
// pod, as a vertical autoscaler does whose webhook comes after ours. The API
// server then calls ours again.
func TestAmountsThatAnotherWebhookAddsAreRefused(t *testing.T) {
	p, v := admit(Request{Pod: pod(t, be, "", "requests: {cpu: 1, memory: 1Gi}")})
	if !v.Allowed() {
		t.Fatal(v.Message())
	}
	for _, n := range native.both() {
		p.Spec.Containers[0].Resources.Requests[n] = resource.MustParse("2")
	}
	_, v = admit(Request{Pod: p})
	if len(v.Refusals) != 2 || v.Refusals[0].Field != "spec.containers[job].resources.requests[cpu]" {
		t.Errorf("%q; want both amounts to be refused", v.Message())
	}
}
