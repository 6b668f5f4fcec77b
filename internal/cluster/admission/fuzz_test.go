package admission

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/model/node"
)

// held checks that an admitted BE pod is bounded. It does not use Unbounded.
func held(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if kube.ClassWithDefault(p) != node.BE || p.Labels[kube.LabelQOSClass] == "" || isMirror(p) || namedTwice(p) {
		return
	}
	fail := func(why string) {
		text, _ := json.Marshal(p)
		t.Errorf("admitted without an upper bound: %s:\n%s", why, text)
	}
	said, faults := kube.Extended(p)
	if len(faults) > 0 {
		fail(fmt.Sprint(faults))
	}
	if kube.QOSClass(p) != corev1.PodQOSBestEffort {
		if p.Annotations[configv1alpha1.SkipUpdateResources] != "true" {
			fail("it is not below the kubelet's best-effort cgroup")
		}
		if n := kube.Native(p); !n.CPULimit.Known() || !n.MemoryLimit.Known() {
			fail("the kubelet sets it no limit")
		}
	}
	for _, c := range append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...) {
		w, b, ours := kube.Starting(p, c.Name, true)
		cpu, memory := c.Resources.Limits[corev1.ResourceCPU], c.Resources.Limits[corev1.ResourceMemory]
		if ours && (!w.CPUManagedExternally && !b.CPULimit.Known() && !cpu.IsZero() || !w.MemoryManagedExternally && !b.MemoryLimit.Known() && !memory.IsZero()) {
			fail("NRI takes the limits of " + c.Name + " away")
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			for _, n := range []corev1.ResourceName{kube.BatchCPU, kube.BatchMemory} {
				request, asks := c.Resources.Requests[n]
				limit, limited := c.Resources.Limits[n]
				if !asks && !limited {
					continue
				}
				runtime := said[c.Name].Limits[n]
				if !limited || limit.Sign() <= 0 || limit.Value() <= 0 || request.Cmp(limit) > 0 || runtime.Cmp(limit) != 0 {
					fail(fmt.Sprintf("%s of %s: request %s, limit %s, for the runtime %s", n, c.Name, request.String(), limit.String(), runtime.String()))
				}
			}
		}
	}
}

// namedTwice reports whether two containers have the same name. The API server
// refuses such a pod, but only after the webhooks. The annotation with the
// limits can contain only one of the two containers.
func namedTwice(p *corev1.Pod) bool {
	names := map[string]bool{}
	for _, c := range append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...) {
		if names[c.Name] {
			return true
		}
		names[c.Name] = true
	}
	return false
}

// sent encodes and decodes a pod, as the API server does.
func sent(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var after corev1.Pod
	if err := json.Unmarshal(text, &after); err != nil {
		t.Fatal(err)
	}
	return &after
}

func say(t *testing.T, v Verdict) {
	t.Helper()
	for _, r := range v.Refusals {
		if r.Field == "" || r.Problem == "" || strings.ContainsAny(r.String(), "\n\r") {
			t.Errorf("refusal %+q: want one line with a reason", r)
		}
	}
	for _, w := range v.Warnings {
		if w.Code == "" || w.Problem == "" || strings.ContainsAny(w.String(), "\n\r") {
			t.Errorf("warning %q: want one line", w)
		}
	}
}

// FuzzAdmission checks that no pod and no profile makes the webhooks panic.
// Each message must be one line, and each admitted BE pod must be bounded. If
// an admitted pod is sent again, the webhooks must not change it.
func FuzzAdmission(f *testing.F) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		docs := strings.Split(string(text), "\n---\n")
		last, _ := yaml.YAMLToJSON([]byte(docs[len(docs)-1]))
		one, _ := yaml.YAMLToJSON([]byte(docs[0]))
		f.Add(string(last), string(one), 0.5)
	}
	f.Add(`{"spec":{"containers":null}}`, `{"spec":{"patch":{"spec":null,"metadata":null},"qosClass":"BE"}}`, 0.0)
	f.Add(`{"metadata":{"labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"resources":{"limits":{"cpu":"2"}}}}`, `{"spec":{"probability":-3}}`, 1.0)
	f.Fuzz(func(t *testing.T, podJSON, profileJSON string, draw float64) {
		var p corev1.Pod
		if json.Unmarshal([]byte(podJSON), &p) != nil {
			return
		}
		r := Request{Pod: &p, Namespace: &corev1.Namespace{}, Draw: func() float64 { return draw },
			PriorityClasses: map[string]schedulingv1.PriorityClass{"koord-batch": {Value: 5000}, "koord-mid": {Value: 7000}}}
		var profile configv1alpha1.ClusterColocationProfile
		if json.Unmarshal([]byte(profileJSON), &profile) == nil {
			r.Profiles = append(r.Profiles, profile)
			say(t, ValidateProfile(&profile, r.PriorityClasses))
		}
		admitted, v := admit(r)
		say(t, v)
		say(t, ValidateUpdate(&p, admitted, tenant.Namespace{}))
		if !v.Allowed() {
			return
		}
		held(t, admitted)
		again, v := admit(Request{Pod: sent(t, admitted)})
		a, _ := json.Marshal(admitted)
		if b, _ := json.Marshal(again); !v.Allowed() || string(a) != string(b) {
			t.Errorf("admitted as\n%s\nafter a second call\n%s\nand %s", a, b, v.Message())
		}
	})
}

// FuzzConfigMapAdmission checks that no text makes the webhook panic.
func FuzzConfigMapAdmission(f *testing.F) {
	f.Add("colocation-config", `{"enable": true, "nodeConfigs": [{}]}`)
	f.Add("cpu-burst", `{"enabledNamespaces": ["a"], "disabledNamespaces": ["a"]}`)
	f.Add("\xc4\r", "")
	f.Fuzz(func(t *testing.T, key, text string) {
		say(t, ValidateConfigMap(map[string]string{key: text}))
		say(t, ValidatePodConfigMap(map[string]string{key: text}))
	})
}

// TestGarbagePodsNeverRunWithoutBounds sends 20,000 pods to the webhooks. The
// pods have random combinations of valid and invalid labels, annotations and
// amounts.
func TestGarbagePodsNeverRunWithoutBounds(t *testing.T) {
	const seed, pods = 20261122, 20000
	draw := rand.New(rand.NewPCG(seed, 1))
	g := garbage{draw}
	letIn, best := 0, 0
	for range pods {
		r := Request{Pod: g.pod(), Draw: draw.Float64, PriorityClasses: map[string]schedulingv1.PriorityClass{"koord-batch": {Value: 5000}, "koord-mid": {Value: 7000}}}
		if draw.IntN(2) == 0 {
			r.Namespace = &corev1.Namespace{}
		}
		r.ColocationOff = draw.IntN(4) == 0
		for range draw.IntN(3) {
			r.Profiles = append(r.Profiles, g.profile())
		}
		p, v := admit(r)
		say(t, v)
		if v.Allowed() {
			letIn++
			if kube.Class(p) == node.BE {
				best++
			}
			if !r.ColocationOff || asksBatch(p) {
				held(t, p)
			}
			if v := ValidateCreate(sent(t, p), tenant.Namespace{Name: "default"}, r.ColocationOff, r.Ranges); !v.Allowed() {
				t.Errorf("admitted, but refused at a second call: %s", v.Message())
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("of %d pods %d were admitted, %d of them BE", pods, letIn, best)
	if letIn < pods/20 || best < pods/100 {
		t.Errorf("of %d pods %d were admitted, %d of them BE: too few for a result", pods, letIn, best)
	}
}

// garbage makes random objects.
type garbage struct{ *rand.Rand }

func (g garbage) of(words ...string) string { return words[g.IntN(len(words))] }

func (g garbage) some(p float64) bool { return g.Float64() < p }

func (g garbage) amount() resource.Quantity {
	return resource.MustParse(g.of("0", "1", "2", "2", "100m", "500m", "1k", "2k", "1Gi", "1Gi", "22Gi", "-1", "1e18", "9Ei", "0.0001", "123456789012345678901234567890"))
}

func (g garbage) list() corev1.ResourceList {
	if g.some(0.3) {
		return nil
	}
	names := []string{"cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory",
		"kubernetes.io/mid-cpu", "koordinator.sh/batch-cpu", "alibabacloud.com/reclaimed", "nvidia.com/gpu", "ephemeral-storage"}
	l := corev1.ResourceList{}
	for range g.IntN(4) {
		l[corev1.ResourceName(g.of(names...))] = g.amount()
	}
	return l
}

func (g garbage) containers(prefix string, most int) []corev1.Container {
	var all []corev1.Container
	for i := range g.IntN(most + 1) {
		c := corev1.Container{Name: fmt.Sprint(prefix, i), Resources: corev1.ResourceRequirements{Requests: g.list(), Limits: g.list()}}
		if g.some(0.3) {
			c.Resources.Limits = c.Resources.Requests.DeepCopy()
		}
		if g.some(0.05) {
			c.Name = g.of("", "app0", "a\nb", strings.Repeat("x", 300))
		}
		all = append(all, c)
	}
	return all
}

func (g garbage) pod() *corev1.Pod {
	p := &corev1.Pod{}
	p.Name = "job"
	if g.some(0.8) {
		p.Labels = map[string]string{kube.LabelQOSClass: g.of("BE", "BE", "BE", "LS", "LSR", "LSE", "SYSTEM", "be", "", "best\neffort")}
	}
	if g.some(0.1) {
		set(&p.Labels, map[string]string{kube.LabelPriorityClass: g.of("koord-batch", "koord-free", "koord-mid", "koord-prod", "low")})
	}
	notes := map[string]string{
		kube.AnnotationExtended:            g.of(`{"containers":{"app0":{"limits":{"kubernetes.io/batch-cpu":"64k"}}}}`, `{"containers":{"app0":{"limits":{"cpu":"1e-2147483647"}}}}`, `{}`, `[`, "", "\x00"),
		configv1alpha1.SkipUpdateResources: g.of("true", "false"),
		AnnotationReplace:                  g.of("cpu:kubernetes.io/batch-cpu", "kubernetes.io/batch-cpu:cpu", "cpu:,memory:", ":", "", "kubernetes.io/batch-cpu:"),
		kube.AnnotationACKQOSClass:         g.of("BE", "LS", "x"),
		kube.AnnotationCPUBurst:            g.of(`{"policy":"auto"}`, `{"policy":1}`, "{"),
		annotationLimitRange:               "LimitRanger plugin set: cpu request",
	}
	for key, text := range notes {
		if g.some(0.1) {
			set(&p.Annotations, map[string]string{key: text})
		}
	}
	if g.some(0.3) {
		set(&p.Annotations, map[string]string{configv1alpha1.SkipUpdateResources: "true"})
	}
	p.Spec.InitContainers = g.containers("init", 2)
	p.Spec.Containers = g.containers("app", 3)
	if g.some(0.1) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: g.list(), Limits: g.list()}
	}
	if g.some(0.2) {
		v := int32(g.of("5", "9", "7", "3", "-")[0]-'0')*1000 + 500
		p.Spec.Priority = &v
	}
	return p
}

func (g garbage) profile() configv1alpha1.ClusterColocationProfile {
	var p configv1alpha1.ClusterColocationProfile
	text := `{"metadata":{"name":"` + g.of("a", "b") + `","annotations":{"config.koordinator.sh/skip-update-resources":"` + g.of("true", "false", "false") + `"}},"spec":` + g.of(
		`{"qosClass":"BE"}`, `{"qosClass":"BE","priorityClassName":"koord-batch"}`, `{"priorityClassName":"koord-mid"}`, `{"priorityClassName":"none"}`,
		`{"labels":{"koordinator.sh/qosClass":"BE"},"probability":"50%"}`, `{"qosClass":"LS","selector":{"matchExpressions":[{"key":"a","operator":"x"}]}}`,
		`{"patch":{"metadata":{"labels":{"koordinator.sh/qosClass":"BE"}}}}`, `{"patch":{"spec":{"containers":[{"name":"app0","resources":{"limits":{"cpu":"4"}}}]}}}`,
		`{"patch":[]}`, `{"namespaceSelector":{"matchLabels":{"a":"b"}},"qosClass":"BE"}`, `{"labelSuffixes":{"koordinator.sh/qosClass":"R"}}`, `{"labelKeysMapping":{"koordinator.sh/qosClass":"x"}}`,
	) + `}`
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	return p
}
