package admission

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
)

// pod returns a pod with one container. labels, annotations, and the
// container's resources are YAML.
func pod(t *testing.T, labels, annotations, resources string) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	text := "metadata: {name: job, labels: {" + labels + "}, annotations: {" + annotations + "}}\nspec: {containers: [{name: job, resources: {" + resources + "}}]}\n"
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return &p
}

const (
	be     = "koordinator.sh/qosClass: BE"
	lsr    = "koordinator.sh/qosClass: LSR"
	two    = "limits: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}, requests: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}"
	own    = "requests: {cpu: 1500m, memory: 1Gi}"
	batch2 = "kubernetes.io/batch-cpu: 2k"
)

// admit calls the mutating webhook and then the validating webhook.
func admit(r Request) (*corev1.Pod, Verdict) {
	p, v := Mutate(r)
	judged := ValidateCreate(p, tenant.Namespace{Name: "default"}, r.ColocationOff, r.Ranges)
	return p, Verdict{append(v.Refusals, judged.Refusals...), append(v.Warnings, judged.Warnings...)}
}

// TestEachRefusalSaysWhatToWrite checks the message of each refusal. It must
// name the field and say what to write instead.
func TestEachRefusalSaysWhatToWrite(t *testing.T) {
	for name, tc := range map[string]struct{ labels, annotations, resources, want string }{
		"an unknown class":                          {"koordinator.sh/qosClass: best", "", own, `metadata.labels[koordinator.sh/qosClass]: "best": want one of LSE, LSR, LS, SYSTEM, BE`},
		"an unknown priority class":                 {"koordinator.sh/priority-class: low", "", own, `metadata.labels[koordinator.sh/priority-class]: "low": want one of koord-prod, koord-mid, koord-batch, koord-free`},
		"a sub-priority that is not a number":       {"koordinator.sh/priority: high", "", own, `metadata.labels[koordinator.sh/priority]: "high": want a whole number`},
		"batch resources of a service":              {"koordinator.sh/qosClass: LS", "", two, `batch resources are for class BE, and this pod is LS: write koordinator.sh/qosClass: BE, or ask for cpu and memory`},
		"batch resources without a class":           {"", "", two, `batch resources are for class BE, and this pod names no class: add the label koordinator.sh/qosClass: BE`},
		"batch and native in one container":         {be, "", "limits: {cpu: 2, " + batch2 + "}", `spec.containers[job].resources.limits[cpu]: this container also has batch resources: want only one kind; write kubernetes.io/batch-cpu: 2k instead`},
		"batch cpu and native memory":               {be, "", "limits: {memory: 1Gi, " + batch2 + "}", `spec.containers[job].resources.limits[memory]: this container also has batch resources: want only one kind; write kubernetes.io/batch-memory: 1Gi instead`},
		"a fraction of a thousandth":                {be, "", "limits: {kubernetes.io/batch-cpu: 500m}", `spec.containers[job].resources.requests[kubernetes.io/batch-cpu]: 500m: want a whole number of thousandths of a CPU: 1k is one CPU`},
		"an amount below 0":                         {be, "", "limits: {kubernetes.io/batch-memory: -1}", `limits[kubernetes.io/batch-memory]: -1: want 0 to 1Ei bytes`},
		"more CPUs than there are":                  {be, "", "limits: {cpu: 2M}", `spec.containers[job].resources.limits[cpu]: a pod of class BE runs on CPU and memory that others leave idle: write kubernetes.io/batch-cpu: 0 to 1G (thousandths of a CPU) instead`},
		"a request above its limit":                 {be, "", "requests: {kubernetes.io/batch-cpu: 3k}, limits: {kubernetes.io/batch-cpu: 2k}", `spec.containers[job].resources.requests[kubernetes.io/batch-cpu]: 3k: want at most the limit, which is 2k`},
		"a fraction of a CPU for LSR":               {lsr, "", own, `1500m in total: a pod of class LSR has exclusive CPUs: want a whole number such as 2, or class LS`},
		"no CPU for LSE":                            {"koordinator.sh/qosClass: LSE", "", "", `0m in total: a pod of class LSE has exclusive CPUs: want a whole number such as 2, or class LS`},
		"LSR of batch priority":                     {lsr + ", koordinator.sh/priority-class: koord-batch", "", "requests: {cpu: 2}", `metadata.labels[koordinator.sh/priority-class]: koord-batch and class LSR contradict each other: want koord-prod, or no priority class`},
		"BE of prod priority":                       {be + ", koordinator.sh/priority-class: koord-prod", "", two, `metadata.labels[koordinator.sh/priority-class]: koord-prod and class BE contradict each other: want koord-batch, or no priority class`},
		"cpuBurst out of range":                     {"", `koordinator.sh/cpuBurst: '{"cpuBurstPercent": 0}'`, own, `metadata.annotations[koordinator.sh/cpuBurst].cpuBurstPercent: 0: want a whole number from 1 to 10000`},
		"cpuBurst with an unknown word":             {"", `koordinator.sh/cpuBurst: '{"policy": "on"}'`, own, `metadata.annotations[koordinator.sh/cpuBurst].policy: "on": want one of none, cpuBurstOnly, cfsQuotaBurstOnly, auto`},
		"cpuQOS out of range":                       {"koordinator.sh/qosClass: LS", `koordinator.sh/cpuQOS: '{"groupIdentity": 3}'`, own, `metadata.annotations[koordinator.sh/cpuQOS].groupIdentity: 3: want a whole number from -1 to 2`},
		"memoryQOS that is not JSON":                {"", `koordinator.sh/memoryQOS: '{'`, own, `metadata.annotations[koordinator.sh/memoryQOS]: not JSON`},
		"blkioQOS without a name":                   {"", `koordinator.sh/blkioQOS: '{"blocks": [{"ioCfg": {"readBPS": 1}}]}'`, own, `metadata.annotations[koordinator.sh/blkioQOS].blocks[0].name: missing: want a device such as /dev/vda`},
		"resctrl out of range":                      {"", `node.koordinator.sh/resctrl: '{"mb": {"schemata": {"percent": 101}}}'`, own, `metadata.annotations[node.koordinator.sh/resctrl].mb.schemata.percent: 101: want a whole number from 1 to 100`},
		"eviction-priority that is not a number":    {"", `koordinator.sh/eviction-priority: soon`, own, `metadata.annotations[koordinator.sh/eviction-priority]: "soon": want a whole number`},
		"eviction-policy that is not a list":        {"", `koordinator.sh/eviction-policy: BECPUEvict`, own, `metadata.annotations[koordinator.sh/eviction-policy]: "BECPUEvict": want a JSON list`},
		"resource-spec with an unknown word":        {"", `scheduling.koordinator.sh/resource-spec: '{"requiredCPUBindPolicy": "Full"}'`, own, `metadata.annotations[scheduling.koordinator.sh/resource-spec].requiredCPUBindPolicy: "Full": want one of Default, FullPCPUs`},
		"resource-status that is not a set of CPUs": {"", `scheduling.koordinator.sh/resource-status: '{"cpuset": "x"}'`, own, `metadata.annotations[scheduling.koordinator.sh/resource-status].cpuset`},
		"replace-resources without a pair":          {be, `pod.koordinator.sh/replace-resources: cpu`, two, `metadata.annotations[pod.koordinator.sh/replace-resources]: "cpu": want from:to pairs`},
		"limits that a profile should have kept":    {be, `config.koordinator.sh/skip-update-resources: "true"`, own, `spec.containers[job].resources.limits[cpu]: missing: only its limits bound a pod of class BE that keeps its own cpu and memory: write both`},
		"class SYSTEM":                              {"koordinator.sh/qosClass: SYSTEM", "", own, `metadata.labels[koordinator.sh/qosClass]: namespace "default" may not have class SYSTEM: want another class, or ask an administrator for the label allow.tenon.sh/SYSTEM: "true" of the namespace`},
		"class SYSTEM by ACK's old annotation":      {"", "alibabacloud.com/qosClass: SYSTEM", own, `metadata.annotations[alibabacloud.com/qosClass]: namespace "default" may not have class SYSTEM`},
		"two names of one resource":                 {be, "", "limits: {kubernetes.io/batch-cpu: 2k, koordinator.sh/batch-cpu: 3k}", `spec.containers[job].resources.limits[koordinator.sh/batch-cpu]: the container also has the new name of this resource: write only the new name`},
	} {
		t.Run(name, func(t *testing.T) {
			_, v := admit(Request{Pod: pod(t, tc.labels, tc.annotations, tc.resources)})
			if !strings.Contains(v.Message(), tc.want) {
				t.Errorf("message\n%s\nwant\n%s", v.Message(), tc.want)
			}
		})
	}
}

func TestPodsThatAreAccepted(t *testing.T) {
	for name, tc := range map[string]struct{ labels, annotations, resources string }{
		"BE without a priority, as on ACK":           {be, "", two},
		"BE of batch priority, as in Koordinator":    {be + ", koordinator.sh/priority-class: koord-batch", "", two},
		"BE of free priority":                        {be + ", koordinator.sh/priority-class: koord-free", "", two},
		"BE that asks for nothing":                   {be, "", ""},
		"BE with requests alone":                     {be, "", "requests: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}"},
		"BE with a request below its limit":          {be, "", "requests: {kubernetes.io/batch-cpu: 1k}, limits: {kubernetes.io/batch-cpu: 2k}"},
		"LS with a fraction of a CPU":                {"koordinator.sh/qosClass: LS", "", own},
		"LSR with whole CPUs and no priority":        {lsr, "", "requests: {cpu: 2}, limits: {cpu: 2}"},
		"no class":                                   {"", "", own},
		"a class that is not set":                    {`koordinator.sh/qosClass: ""`, "", own},
		"LSE of middle priority":                     {"koordinator.sh/qosClass: LSE, koordinator.sh/priority-class: koord-mid", "", "requests: {cpu: 2}"},
		"LS with identity -1, as Koordinator allows": {"koordinator.sh/qosClass: LS", `koordinator.sh/cpuQOS: '{"enable": true, "groupIdentity": -1}'`, own},
		"keys of a newer version":                    {"", `koordinator.sh/cpuBurst: '{"policy": "auto", "tomorrow": 1}'`, own},
		"annotations of all kinds": {"koordinator.sh/qosClass: LS", `koordinator.sh/cpuBurst: '{"policy": "auto", "cpuBurstPercent": 1000}', koordinator.sh/cpuQOS: '{"enable": true, "groupIdentity": 1}', ` +
			`koordinator.sh/memoryQOS: '{"policy": "auto", "minLimitPercent": 100}', koordinator.sh/eviction-priority: "-5", koordinator.sh/eviction-policy: '["BECPUEvict"]', ` +
			`node.koordinator.sh/resctrl: '{"llc": {"schemata": {"range": [0, 30]}}}', scheduling.koordinator.sh/resource-spec: '{"preferredCPUBindPolicy": "FullPCPUs"}'`, own},
		"an annotation that this version ignores": {be, `koordinator.sh/cpuQOS: '{"enable": true, "groupIdentity": 1}'`, two},
	} {
		t.Run(name, func(t *testing.T) {
			if _, v := admit(Request{Pod: pod(t, tc.labels, tc.annotations, tc.resources)}); !v.Allowed() {
				t.Errorf("refused: %s", v.Message())
			}
		})
	}
}

func TestWarningsNameWhatIsMostLikelyNotMeant(t *testing.T) {
	for name, tc := range map[string]struct{ labels, annotations, resources, want string }{
		"CPUs where thousandths are asked for": {be, "", "limits: {kubernetes.io/batch-cpu: 2, kubernetes.io/batch-memory: 1Gi}", "2 thousandths of a CPU is less than the kernel can enforce: 1k is one CPU"},
		"memory without a suffix":              {be, "", "limits: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 512}", "512 bytes is too little to start anything: is a suffix such as Mi missing?"},
		"a BE pod that asks for nothing":       {be, "", "", "the scheduler does not count them"},
		"a resource that is missing":           {be, "", "limits: {kubernetes.io/batch-cpu: 2k}", "limits[kubernetes.io/batch-memory]: missing"},
		"an annotation that Tenon writes":      {"", `node.koordinator.sh/extended-resource-spec: '{"containers":{"job":{"limits":{"kubernetes.io/batch-cpu":"64k"}}}}'`, own, "is written by Tenon and was removed"},
		"an annotation of another class":       {be, `koordinator.sh/cpuQOS: '{"enable": true, "groupIdentity": 1}'`, two, "counts for LS pods only"},
		"a volume of a pod":                    {be, `koordinator.sh/blkioQOS: '{"blocks": [{"name": "data", "type": "podvolume"}]}'`, two, "podvolume is not acted on"},
		"a share of one cache":                 {be, `node.koordinator.sh/resctrl: '{"llc": {"schemataPerCache": [{"cacheID": 0, "range": [0, 50]}]}}'`, two, "schemataPerCache: is not acted on"},
		"a request that hardly counts":         {be, "", "requests: {kubernetes.io/batch-cpu: 1, kubernetes.io/batch-memory: 1Gi}, limits: {kubernetes.io/batch-cpu: 100k, kubernetes.io/batch-memory: 1Gi}", "requests[kubernetes.io/batch-cpu]: the scheduler counts 1 thousandths of a CPU for this container, and its limit is 100k"},
		"memory that hardly counts":            {be, "", "requests: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 0}, limits: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 100Gi}", "requests[kubernetes.io/batch-memory]: the scheduler counts 0 bytes for this container, and its limit is 100Gi"},
		"an old name":                          {be, "", "limits: {koordinator.sh/batch-cpu: 2k}", "koordinator.sh/batch-cpu is an old name: write kubernetes.io/batch-cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			_, v := admit(Request{Pod: pod(t, tc.labels, tc.annotations, tc.resources)})
			if all := strings.Join(v.Texts(), "\n"); !strings.Contains(all, tc.want) {
				t.Errorf("warnings\n%s\nwant\n%s", all, tc.want)
			}
		})
	}
}

func TestWhatANodeDecidesByCannotChangeWhileAPodLives(t *testing.T) {
	for name, tc := range map[string]struct{ labels, annotations, want string }{
		"its class":                    {"koordinator.sh/qosClass: LS", "", `metadata.labels[koordinator.sh/qosClass]: "BE" cannot become "LS" while the pod lives: create it anew`},
		"its class taken away":         {"a: b", "", `metadata.labels[koordinator.sh/qosClass]: "BE" cannot become none`},
		"its priority class":           {be + ", koordinator.sh/priority-class: koord-free", "", `metadata.labels[koordinator.sh/priority-class]: none cannot become "koord-free"`},
		"its sub-priority":             {be + `, koordinator.sh/priority: "7"`, "", `metadata.labels[koordinator.sh/priority]: none cannot become "7"`},
		"the limits of its containers": {be, `node.koordinator.sh/extended-resource-spec: '{}'`, `metadata.annotations[node.koordinator.sh/extended-resource-spec]: none cannot become "{}"`},
	} {
		t.Run(name, func(t *testing.T) {
			v := ValidateUpdate(pod(t, be, "", two), pod(t, tc.labels, tc.annotations, two), tenant.Namespace{})
			if !strings.HasPrefix(v.Message(), tc.want) {
				t.Errorf("message\n%s\nwant\n%s", v.Message(), tc.want)
			}
		})
	}
}

func TestUpdatesJudgeOnlyWhatChanged(t *testing.T) {
	// The rules for new pods refuse each of these values.
	old := pod(t, "koordinator.sh/qosClass: best, koordinator.sh/priority: high", `koordinator.sh/cpuBurst: '{'`, two)
	changed := old.DeepCopy()
	changed.Labels["app"] = "web"
	if v := ValidateUpdate(old, changed, tenant.Namespace{}); !v.Allowed() {
		t.Errorf("a change of an unrelated label is refused: %s", v.Message())
	}
	changed.Annotations["koordinator.sh/memoryQOS"] = "{"
	if v := ValidateUpdate(old, changed, tenant.Namespace{}); len(v.Refusals) != 1 || !strings.Contains(v.Message(), "memoryQOS") {
		t.Errorf("message %q; want one about memoryQOS only", v.Message())
	}
}

func profiled(name string, change func(*configv1alpha1.ClusterColocationProfileSpec)) configv1alpha1.ClusterColocationProfile {
	p := configv1alpha1.ClusterColocationProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(&p.Spec)
	return p
}

func TestProfilesActInTheOrderOfTheirNames(t *testing.T) {
	label := func(v string) func(*configv1alpha1.ClusterColocationProfileSpec) {
		return func(s *configv1alpha1.ClusterColocationProfileSpec) { s.Labels = map[string]string{"last": v} }
	}
	p, _ := Mutate(Request{Pod: pod(t, "", "", own), Profiles: []configv1alpha1.ClusterColocationProfile{profiled("b", label("b")), profiled("a", label("a"))}})
	if p.Labels["last"] != "b" {
		t.Errorf("the label has the value of profile %s, want b", p.Labels["last"])
	}
}

// A profile is matched with the labels of the pod as the user sent it. A label
// from one profile does not make another profile match.
func TestProfilesMatchThePodAsItWasSent(t *testing.T) {
	p, _ := Mutate(Request{Pod: pod(t, "", "", own), Profiles: []configv1alpha1.ClusterColocationProfile{
		profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) { s.Labels = map[string]string{"x": "y"} }),
		profiled("b", func(s *configv1alpha1.ClusterColocationProfileSpec) {
			s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}
			s.QoSClass = "BE"
		}),
	}})
	if p.Labels["x"] != "y" || p.Labels[kube.LabelQOSClass] != "" {
		t.Errorf("labels %v", p.Labels)
	}
}

func TestProfileWithAProbabilityActsOnThatPartOfPods(t *testing.T) {
	for name, tc := range map[string]struct {
		probability intstr.IntOrString
		draw        float64
		want        bool
	}{
		"below":          {intstr.FromString("30%"), 0.29, true},
		"above":          {intstr.FromString("30%"), 0.30, false},
		"never":          {intstr.FromString("0%"), 0, false},
		"always":         {intstr.FromInt32(100), 0.99, true},
		"no percentage":  {intstr.FromString("half"), 0, false},
		"more than all":  {intstr.FromString("130%"), 0, false},
		"less than none": {intstr.FromInt32(-1), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := Request{Pod: pod(t, "", "", own), Draw: func() float64 { return tc.draw }}
			r.Profiles = append(r.Profiles, profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) {
				s.Probability, s.QoSClass = &tc.probability, "BE"
			}))
			if p, _ := Mutate(r); (p.Labels[kube.LabelQOSClass] == "BE") != tc.want {
				t.Errorf("labels %v, want the profile to act: %v", p.Labels, tc.want)
			}
		})
	}
}

func TestProfileWithoutItsPriorityClassRefusesPods(t *testing.T) {
	r := Request{Pod: pod(t, "", "", own)}
	r.Profiles = append(r.Profiles, profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) { s.PriorityClassName = "koord-batch" }))
	_, v := Mutate(r)
	if want := `ClusterColocationProfile a gives the pod the priority class "koord-batch", which does not exist: create it`; !strings.Contains(v.Message(), want) {
		t.Errorf("said %q, want %q", v.Message(), want)
	}
	r.PriorityClasses = map[string]schedulingv1.PriorityClass{"koord-batch": {Value: 5000}}
	p, v := admit(r)
	if !v.Allowed() || p.Labels[kube.LabelQOSClass] != "BE" || *p.Spec.Priority != 5000 {
		t.Errorf("message %q; labels %v; want a pod of batch priority to be BE", v.Message(), p.Labels)
	}
}

func TestPatchOfAProfileCannotRenameAPod(t *testing.T) {
	r := Request{Pod: pod(t, "", "", own)}
	r.Profiles = append(r.Profiles, profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) {
		s.Patch = runtime.RawExtension{Raw: []byte(`{"metadata": {"name": "other", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "job", "env": [{"name": "A", "value": "B"}]}]}}`)}
	}))
	p, v := Mutate(r)
	if p.Name != "job" || p.Labels["a"] != "b" || len(p.Spec.Containers) != 1 || len(p.Spec.Containers[0].Env) != 1 || !v.Allowed() {
		t.Errorf("message %q; the pod is %s with %v and %v", v.Message(), p.Name, p.Labels, p.Spec.Containers)
	}
	r.Profiles[0].Spec.Patch.Raw = []byte(`{"spec": 1}`)
	if _, v := Mutate(r); !strings.Contains(v.Message(), "the patch of ClusterColocationProfile a cannot be applied") {
		t.Errorf("an invalid patch: %q", v.Message())
	}
}

// TestAPatchWithALargeExponentIsRefused checks that a profile cannot make the
// webhooks read a quantity such as 1e-2147483647, which takes hours.
func TestAPatchWithALargeExponentIsRefused(t *testing.T) {
	const want = `"limits.cpu": "1e-2147483647": want a quantity such as 1500 or 2Gi`
	profile := profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) {
		s.Patch = runtime.RawExtension{Raw: []byte(`{"spec": {"containers": [{"name": "job", "resources": {"limits": {"cpu": "1e-2147483647"}}}]}}`)}
	})
	p, said := pod(t, "", "", own), make(chan string, 2)
	go func() {
		said <- ValidateProfile(&profile, nil).Message()
		_, v := Mutate(Request{Pod: p, Profiles: []configv1alpha1.ClusterColocationProfile{profile}})
		said <- v.Message()
	}()
	for range 2 {
		select {
		case text := <-said:
			if !strings.Contains(text, want) {
				t.Errorf("said %q, want %q", text, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the patch is still being read")
		}
	}
}

// The kubelet runs a static pod from a file. So a change of the mirror pod has
// no effect.
func TestMirrorsOfStaticPodsAreLeftAlone(t *testing.T) {
	p := pod(t, be, "kubernetes.io/config.mirror: abc", own)
	if after, _ := admit(Request{Pod: p}); len(after.Spec.Containers[0].Resources.Limits) == 0 {
		t.Error("the annotation alone lets a BE pod stay without limits")
	}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u", Controller: new(true)}}
	before, _ := json.Marshal(p)
	after, v := admit(Request{Pod: p})
	if text, _ := json.Marshal(after); string(text) != string(before) || !v.Allowed() || len(v.Warnings) > 0 {
		t.Errorf("message %q, warnings %q, and the pod\n%s", v.Message(), v.Warnings, text)
	}
}

func TestMutateLeavesThePodThatWasSent(t *testing.T) {
	sent := pod(t, be, "", "limits: {cpu: 2, memory: 1Gi}")
	before, _ := json.Marshal(sent)
	Mutate(Request{Pod: sent})
	if after, _ := json.Marshal(sent); string(after) != string(before) {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

// The API server calls a webhook again after another webhook has changed the
// pod.
func TestMutateTwiceIsMutateOnce(t *testing.T) {
	for _, resources := range []string{two, own, "", "limits: {cpu: 2, memory: 1Gi}"} {
		once, _ := Mutate(Request{Pod: pod(t, be, "", resources)})
		twice, _ := Mutate(Request{Pod: once})
		a, _ := json.Marshal(once)
		if b, _ := json.Marshal(twice); string(a) != string(b) {
			t.Errorf("once\n%s\ntwice\n%s", a, b)
		}
	}
}

func TestProfilesAreCheckedAsTheyAreWritten(t *testing.T) {
	wrong := profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) {
		half := intstr.FromString("half")
		s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
		s.Probability, s.QoSClass, s.PriorityClassName = &half, "best", "koord-batch"
		s.Patch = runtime.RawExtension{Raw: []byte(`{`)}
	})
	v := ValidateProfile(&wrong, nil)
	for _, want := range []string{"spec.selector: ", `spec.probability: "half": want a percentage such as 30%`, `spec.qosClass: "best": want one of LSE, LSR, LS, BE, SYSTEM`, "spec.patch: "} {
		if !strings.Contains(v.Message(), want) {
			t.Errorf("said %q, want %q", v.Message(), want)
		}
	}
	if len(v.Warnings) != 1 {
		t.Errorf("warnings %q, want one on the priority class", v.Warnings)
	}
}

func TestConfigMapsAreRefusedWithKeyValueAndRange(t *testing.T) {
	v := ValidateConfigMap(map[string]string{
		"resource-threshold-config": "{\"clusterStrategy\":\n{\"cpuSuppressThresholdPercent\": 101}}",
		"cpu-burst-config":          `{"clusterStrategy": {"policy": "auto", "cpuBurstPrecent": 5}}`,
	})
	if want := "resource-threshold-config.clusterStrategy.cpuSuppressThresholdPercent: 101: want a whole number from 0 to 100 (line 2 of the text)"; v.Message() != want {
		t.Errorf("message\n%s\nwant\n%s", v.Message(), want)
	}
	if len(v.Warnings) != 1 || !strings.Contains(v.Texts()[0], "did you mean cpuBurstPercent?") {
		t.Errorf("warnings %q", v.Warnings)
	}
	if v := ValidatePodConfigMap(map[string]string{"cpu-burst": `{"enabledNamespaces": "web"}`}); !strings.Contains(v.Message(), "cpu-burst.enabledNamespaces") {
		t.Errorf("message about the namespaces: %q", v.Message())
	}
}

func TestConfigMapKeysThatDoNotActAreWarnings(t *testing.T) {
	v := ValidateConfigMap(map[string]string{"system-config": `{"clusterStrategy": {"minFreeKbytesFactor": 100}}`, "mine": "x"})
	if all := strings.Join(v.Texts(), "\n"); !v.Allowed() || !strings.Contains(all, "system-config.minFreeKbytesFactor is not acted on") || !strings.Contains(all, "mine: unknown key") {
		t.Errorf("said %q, warned %q", v.Message(), v.Warnings)
	}
}
