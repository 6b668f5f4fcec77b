package manager

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
)

// A tally counts the results of writes: how many were admitted (let), refused
// by a webhook, and refused by the API server itself (unread).
type tally struct{ let, refused, unread int }

// take counts the result of a write. A refusal by a webhook must have a message.
// A refusal by the API server itself counts as unread. Any other error fails the
// test.
func (a *tally) take(t *testing.T, err error, sent any) (let bool) {
	t.Helper()
	text, _ := json.Marshal(sent)
	const denied = "denied the request: "
	switch {
	case err == nil:
		a.let++
	case strings.Contains(err.Error(), denied):
		a.refused++
		if _, message, _ := strings.Cut(err.Error(), denied); len(message) < 20 {
			t.Errorf("a refusal without a reason: %q for %s", message, text)
		}
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err):
		a.unread++
	default:
		t.Errorf("%v\n%s", err, text)
	}
	return err == nil
}

// TestGarbageSettingsProfilesAndChangesEndNothing writes random ConfigMaps,
// random profiles with matching pods, and random changes of a running pod.
// Objects that the webhooks admit must have no fault, and each admitted BE pod
// must be bounded.
func TestGarbageSettingsProfilesAndChangesEndNothing(t *testing.T) {
	s := newScene(t)
	r := s.start(s.webhooks)
	s.awaitTrust()
	rnd := rand.New(rand.NewPCG(51, 52))

	var settings tally
	for range 150 {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.config.Namespace, Name: s.config.Name}, Data: garbageSettings(rnd)}
		if settings.take(t, s.client.Update(s.ctx, m, client.DryRunAll), m.Data) {
			if _, faults := config.ParseConfigMap(m.Data); len(faults) > 0 {
				t.Errorf("settings with faults are admitted: %v\n%v", faults, m.Data)
			}
		}
	}

	var profiles, pods tally
	acted := 0
	for i := range 100 {
		profile := garbageProfile(rnd, fmt.Sprintf("%s-%d", s.name, i))
		if !profiles.take(t, s.client.Create(s.ctx, profile), profile) {
			continue
		}
		time.Sleep(20 * time.Millisecond) // on most machines, the manager has read it by then
		for range 3 {
			p := s.garbage(rnd)
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			p.Labels["garbage"] = "yes"
			sent := p.DeepCopy()
			if pods.take(t, s.client.Create(s.ctx, p, client.DryRunAll), []any{profile, sent}) {
				s.requireBound(p, sent, profile)
			}
			if p.Annotations["tenon.sh/colocation-profiles"] != "" {
				acted++
			}
		}
		s.must(s.client.Delete(s.ctx, profile))
	}

	var changes tally
	living := s.pod("BE", listOf("cpu", "1500m", "memory", "2Gi"))
	s.must(s.client.Create(s.ctx, living))
	for range 150 {
		patch, _ := json.Marshal(map[string]any{"metadata": garbageChange(rnd)})
		p := living.DeepCopy()
		if changes.take(t, s.client.Patch(s.ctx, p, client.RawPatch(types.MergePatchType, patch), client.DryRunAll), string(patch)) {
			s.requireBound(p, string(patch))
			if p.Labels[kube.LabelQOSClass] != "BE" {
				t.Errorf("the class of a running pod was changed by %s", patch)
			}
		}
	}
	s.must(s.client.Delete(s.ctx, living, client.GracePeriodSeconds(0)))

	t.Logf("admitted, refused by the webhooks, by the API server: settings %v, profiles %v, pods %v (profiles acted on %d), changes %v", settings, profiles, pods, acted, changes)
	for name, a := range map[string]tally{"settings": settings, "pods": pods, "changes": changes} {
		if a.let < 5 || a.refused < 5 {
			t.Errorf("want each result often enough: %s %+v", name, a)
		}
	}
	if acted == 0 || profiles.refused == 0 {
		t.Errorf("profiles %+v acted on %d pods", profiles, acted)
	}
	if n := r.log.count("panic"); n > 0 {
		t.Errorf("%d panics", n)
	}
	s.awaitTrust() // the manager still answers
}

// requireBound fails the test if a BE pod has no upper bound.
func (s *scene) requireBound(p *corev1.Pod, sent ...any) {
	s.t.Helper()
	if faults := admission.Unbounded(p, false, nil); len(faults) > 0 {
		text, _ := json.Marshal(sent)
		s.t.Errorf("a BE pod without an upper bound: %v\n%s", faults, text)
	}
}

func garbageSettings(rnd *rand.Rand) map[string]string {
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	number := func() string {
		return one("0", "1", "65", "65", "100", "101", "-1", "1e99", "0.5", `"65"`, "null", "true", "{}", "9223372036854775808")
	}
	field := func() string {
		return fmt.Sprintf("%q: %s", one("enable", "cpuReclaimThresholdPercent", "cpuSuppressThresholdPercent", "cpuSuppressPolicy", "memoryEvictThresholdPercent", "cpuBurstPercent", "policy", "degradeTimeMinutes", "resourceDiffThreshold", "wat"),
			one(number(), number(), `"auto"`, `"cfsQuota"`, `"usage"`, "false", "[]", `[{"name": "a", "nodeSelector": {"matchLabels": {"a": "b"}}}]`))
	}
	data := map[string]string{}
	for range rnd.IntN(4) {
		text := "{" + field() + ", " + field() + "}"
		if rnd.IntN(2) == 0 {
			text = `{"clusterStrategy": ` + text + `, ` + one(`"nodeStrategies": []`, `"nodeStrategies": [{}]`, `"nodeStrategies": 5`, field()) + "}"
		}
		if rnd.IntN(8) == 0 {
			text = one("", "{", "null", "[]", "5", strings.Repeat("[", 5000), strings.Repeat(`{"a":`, 2000), "\u0000", text[:len(text)/2])
		}
		data[one("colocation-config", "resource-threshold-config", "resource-qos-config", "cpu-burst-config", "system-config", "host-application-config", "resource-amplification-config", "other")] = text
	}
	return data
}

func garbageProfile(rnd *rand.Rand, name string) *configv1alpha1.ClusterColocationProfile {
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	words := func() map[string]string {
		return map[string]string{one(kube.LabelQOSClass, kube.LabelPriorityClass, kube.LabelSubPriority, kube.AnnotationExtended, kube.AnnotationCPUBurst, admission.AnnotationReplace,
			configv1alpha1.SkipUpdateResources, "a b", "x"): one("BE", "LS", "true", "{}", "koord-batch", "cpu:kubernetes.io/batch-cpu", "-1", "a b", strings.Repeat("x", 100), "")}
	}
	p := &configv1alpha1.ClusterColocationProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: configv1alpha1.ClusterColocationProfileSpec{
		QoSClass: one("BE", "BE", "LS", "LSR", "SYSTEM", "best", ""), PriorityClassName: one("", "", "", "none", "system-node-critical"),
	}}
	if rnd.IntN(4) > 0 {
		p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"garbage": "yes"}}
	} else {
		p.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: one("garbage", "a b", ""), Operator: metav1.LabelSelectorOperator(one("In", "Exists", "Near")), Values: []string{"yes"}}}}
	}
	if rnd.IntN(3) == 0 {
		v := intstr.Parse(one("50%", "0", "100%", "x%", "-5", "150", "1e9", "9999999999%"))
		p.Spec.Probability = &v
	}
	if rnd.IntN(3) == 0 {
		p.Spec.Labels = words()
	}
	if rnd.IntN(3) == 0 {
		p.Spec.Annotations = words()
	}
	if rnd.IntN(4) == 0 {
		p.Spec.LabelSuffixes = words()
	}
	if rnd.IntN(4) == 0 {
		p.Spec.AnnotationKeysMapping = words()
	}
	if rnd.IntN(2) == 0 {
		p.Spec.Patch = runtime.RawExtension{Raw: []byte(one("{}", `{"metadata":{"name":"x"}}`, `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"64"}}}]}}`,
			`{"spec":{"containers":[{"name":"main","resources":{"limits":null,"requests":null}}]}}`, `{"metadata":{"labels":{"koordinator.sh/qosClass":"BE"}}}`,
			`{"metadata":{"annotations":{"node.koordinator.sh/extended-resource-spec":"{}"}}}`, `{"spec":5}`, `{"$patch":"delete"}`, `{"spec":{"containers":[{"$patch":"replace"}]}}`, `{"wat":{}}`, `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1e-2147483647"}}}]}}`))}
	}
	return p
}

func garbageChange(rnd *rand.Rand) map[string]any {
	one := func(of ...any) any { return of[rnd.IntN(len(of))] }
	key := func(of ...string) string { return of[rnd.IntN(len(of))] }
	change := map[string]any{}
	if rnd.IntN(2) == 0 {
		change["labels"] = map[string]any{key(kube.LabelQOSClass, kube.LabelPriorityClass, kube.LabelSubPriority, "other"): one("BE", "LS", "LSE", "7", "x", "koord-prod", "", nil)}
	}
	if len(change) == 0 || rnd.IntN(2) == 0 {
		change["annotations"] = map[string]any{key(kube.AnnotationExtended, kube.AnnotationCPUBurst, kube.AnnotationCPUQOS, kube.AnnotationMemoryQOS, kube.AnnotationResctrl, kube.AnnotationACKQOSClass, "other"): one(
			"", "{}", "null", `{"enable":true}`, `{"cpuBurstPercent":1e9}`, strings.Repeat("[", 3000), `{"policy":"auto"}`, "-5", nil, `{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"9999999"}}}}`, `{"containers":{"main":{"limits":{"cpu":"1e-2147483647"}}}}`)}
	}
	return change
}
