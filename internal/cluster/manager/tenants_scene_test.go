package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/cluster/webhooks"
)

// TestNamespacesSayWhatTheirPodsMayAskFor checks labels of namespaces on a real
// API server: what is refused while a manager runs, and while none does.
func TestNamespacesSayWhatTheirPodsMayAskFor(t *testing.T) {
	s := newScene(t)
	stopped := Options{}
	s.webhooks(&stopped) // the API server calls the webhooks, and no manager answers
	may := tenant.LabelPrefix + string(tenant.System)
	space := func(name string, labels map[string]string) string {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + name, Labels: labels}}
		s.must(s.client.Create(s.ctx, n))
		return n.Name
	}
	plain, marked, guarded := space("plain", nil), space("marked", map[string]string{may: "true"}),
		space("guarded", map[string]string{webhooks.LabelRequired: "true", tenant.LabelPrefix + "own-cpus": "false", tenant.LabelPrefix + "LS": "false", tenant.LabelPrefix + "batch-above-requests": "false"})
	create := func(space, class string, list corev1.ResourceList) error {
		p := s.pod(class, list)
		p.Namespace = space
		return s.client.Create(s.ctx, p)
	}
	two := listOf("cpu", "2", "memory", "16Mi")
	s.refused(create(plain, "SYSTEM", two), "system.validate.tenon.sh")
	s.must(create(marked, "SYSTEM", two))
	s.must(create(plain, "LSR", two))
	s.refused(create(guarded, "LSE", two), "required")

	s.start(s.webhooks)
	s.awaitTrust()
	s.refused(create(plain, "SYSTEM", two), `class SYSTEM: want another class, or ask an administrator for the label `+may+`: "true" of the namespace`)
	s.must(create(marked, "SYSTEM", two))
	s.must(create(plain, "LSR", two))
	s.refused(create(guarded, "LSE", two), `own CPUs (2): `)
	s.refused(create(guarded, "", two), "class LS, which this pod gets because it names no class")
	s.refused(create(guarded, "", nil), "batch work above its requests, which a pod without a class and without requests is")
	// The schedulers order by the number, whatever the label says.
	s.must(s.client.Create(s.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Value: 9500}))
	defer func() {
		s.must(s.client.Delete(s.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.name}}))
	}()
	ranked := s.pod("LS", two)
	ranked.Namespace, ranked.Spec.PriorityClassName, ranked.Labels["koordinator.sh/priority-class"] = space("ranked", map[string]string{tenant.LabelPrefix + "koord-prod": "false"}), s.name, "koord-mid"
	s.waitUntil("the API server knows the priority", now, func() bool {
		err := s.client.Create(s.ctx, ranked.DeepCopy())
		return err != nil && strings.Contains(err.Error(), "may not have the priority koord-prod")
	})
	s.must(create(guarded, "BE", listOf("cpu", "1", "memory", "16Mi")))
	s.refused(s.client.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-wrong", Labels: map[string]string{"allow.tenon.sh/own-cpu": "false"}}}), "did you mean allow.tenon.sh/own-cpus?")

	// A profile is no way around the label of a namespace.
	s.must(s.client.Create(s.ctx, &configv1alpha1.ClusterColocationProfile{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: configv1alpha1.ClusterColocationProfileSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, QoSClass: "SYSTEM",
	}}))
	defer func() { s.must(s.client.DeleteAllOf(s.ctx, &configv1alpha1.ClusterColocationProfile{})) }()
	agent := func(space string) error {
		p := s.pod("", two)
		p.Namespace, p.Labels = space, map[string]string{"app": "agent"}
		return s.client.Create(s.ctx, p)
	}
	s.waitUntil("the profile gives class SYSTEM", now, func() bool { err := agent(plain); return err != nil && strings.Contains(err.Error(), "class SYSTEM") })
	s.must(agent(marked))
}

// TestWhatBoundsBatchResources checks what docs/kubernetes.md says about quotas:
// the author of a quota is warned, and the LimitRange of the page refuses what it
// should.
func TestWhatBoundsBatchResources(t *testing.T) {
	s := newScene(t)
	s.start(s.webhooks)
	s.awaitTrust()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-batch"}}
	s.must(s.client.Create(s.ctx, n))
	var l corev1.LimitRange
	s.must(yaml.UnmarshalStrict([]byte(`{apiVersion: v1, kind: LimitRange, metadata: {name: batch}, spec: {limits: [{type: Pod,
		max: {kubernetes.io/batch-cpu: 8k, kubernetes.io/batch-memory: 16Gi}, maxLimitRequestRatio: {kubernetes.io/batch-cpu: "1", kubernetes.io/batch-memory: "1"}}]}}`), &l))
	l.Namespace = n.Name
	s.must(s.client.Create(s.ctx, &l))
	create := func(requests, limits corev1.ResourceList) error {
		p := s.pod("BE", nil)
		p.Namespace = n.Name
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
		return s.client.Create(s.ctx, p)
	}
	amounts := func(cpu, memory string) corev1.ResourceList {
		return listOf("kubernetes.io/batch-cpu", cpu, "kubernetes.io/batch-memory", memory)
	}
	s.waitUntil("the API server knows the LimitRange", now, func() bool { return create(amounts("9k", "1Gi"), amounts("9k", "1Gi")) != nil })
	s.must(create(amounts("8k", "16Gi"), amounts("8k", "16Gi")))
	s.must(create(nil, amounts("1k", "1Gi")))
	s.must(create(listOf("cpu", "1", "memory", "1Gi"), nil)) // translated
	s.refused(create(amounts("9k", "1Gi"), amounts("9k", "1Gi")), "maximum kubernetes.io/batch-cpu usage per Pod is 8k")
	s.refused(create(amounts("1", "1Gi"), amounts("8k", "1Gi")), "limit to request ratio")
	s.refused(create(amounts("0", "0"), amounts("8k", "1Gi")), "kubernetes.io/batch-cpu")
	s.refused(create(nil, nil), "kubernetes.io/batch-cpu")

	said := &warned{}
	rc := rest.CopyConfig(s.rc)
	rc.WarningHandlerWithContext = said
	c, err := client.New(rc, client.Options{Scheme: s.client.Scheme()})
	s.must(err)
	quota := func(name, resource string) {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: n.Name, Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: listOf(resource, "5")}}
		s.must(c.Create(s.ctx, q))
	}
	quota("pods", "pods")
	if len(*said) > 0 {
		t.Errorf("a quota of pods: %q", *said)
	}
	quota("batch", "requests.kubernetes.io/batch-cpu")
	if text := strings.Join(*said, " "); !strings.Contains(text, "spec.hard[requests.kubernetes.io/batch-cpu]: this quota bounds no batch resources") {
		t.Errorf("a quota of batch resources: %q", text)
	}
}

// TestAQuotaOnCPUWantsAnAmountOfBatchPods checks what docs/kubernetes.md says about a
// namespace whose quota is on requests.cpu: the API server wants that each container
// names an amount of CPU, and 0 beside batch resources is one. The quota counts nothing.
func TestAQuotaOnCPUWantsAnAmountOfBatchPods(t *testing.T) {
	s := newScene(t)
	s.start(s.webhooks)
	s.awaitTrust()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-counted"}}
	s.must(s.client.Create(s.ctx, n))
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: n.Name, Name: "cpu"}, Spec: corev1.ResourceQuotaSpec{Hard: listOf("requests.cpu", "1")}}
	s.must(s.client.Create(s.ctx, q))
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: listOf("requests.cpu", "0")} // as the controller of quotas does
	s.must(s.client.Status().Update(s.ctx, q))
	create := func(amounts ...string) error {
		p := s.pod("BE", nil)
		p.Namespace = n.Name
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: listOf(amounts...), Limits: listOf(amounts...)}
		return s.client.Create(s.ctx, p)
	}
	const wants = "must specify requests.cpu"
	s.waitUntil("the API server knows the quota", now, func() bool {
		err := create("kubernetes.io/batch-cpu", "4k")
		return err != nil && strings.Contains(err.Error(), wants)
	})
	s.refused(create("cpu", "4", "memory", "1Gi"), wants) // translated
	for range 2 {                                         // 8 CPUs of batch work, and the quota is 1 CPU
		s.must(create("kubernetes.io/batch-cpu", "4k", "cpu", "0"))
	}
}

// TestANamespaceIsLeftAlone checks the label tenon.sh/ignore on a real API server,
// on a namespace and on pods, while no manager answers and while one does.
func TestANamespaceIsLeftAlone(t *testing.T) {
	s := newScene(t)
	stopped := Options{}
	s.webhooks(&stopped) // the API server calls the webhooks, and no manager answers
	space := func(name string, labels map[string]string) string {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + name, Labels: labels}}
		s.must(s.client.Create(s.ctx, n))
		return n.Name
	}
	alone, may, plain := space("alone", map[string]string{kube.LabelIgnore: "true"}), space("may", map[string]string{tenant.LabelPrefix + string(tenant.Ignore): "true"}), space("plain", nil)
	create := func(space, class string, labelled bool) (*corev1.Pod, error) {
		p := s.pod(class, listOf("cpu", "2", "kubernetes.io/batch-cpu", "1k")) // refused elsewhere
		p.Namespace = space
		if labelled {
			p.Labels[kube.LabelIgnore] = "true"
		}
		return p, s.client.Create(s.ctx, p)
	}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tenon.sh/ignore":"true"}}}`))
	check := func(state string, managed bool) {
		t.Helper()
		for _, x := range []struct {
			space    string
			labelled bool
		}{{alone, false}, {alone, true}, {may, true}} {
			p, err := create(x.space, "BE", x.labelled)
			if want := x.labelled || managed; err != nil || kube.IsIgnored(p) != want || p.Annotations[kube.AnnotationExtended] != "" {
				t.Errorf("%s: in %s, labelled %v: %v, %v", state, x.space, x.labelled, p.ObjectMeta, err)
			}
		}
		_, err := create(plain, "BE", true)
		s.refused(err, "ignored.validate.tenon.sh")
		_, err = create(may, "BE", false)
		s.refused(err, "webhook")
	}
	check("without a manager", false)
	running := s.pod("LS", listOf("cpu", "1"))
	running.Namespace = plain
	s.must(s.client.Create(s.ctx, running))
	s.refused(s.client.Patch(s.ctx, running.DeepCopy(), label), "class.validate.tenon.sh")

	s.start(s.webhooks)
	s.awaitTrust()
	check("with a manager", true)
	s.refused(s.client.Patch(s.ctx, running.DeepCopy(), label), `may not have pods that Tenon leaves alone: leave the label out, or ask an administrator for the label allow.tenon.sh/ignore: "true"`)
	s.refused(s.client.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-wrong", Labels: map[string]string{kube.LabelIgnore: "yes"}}}), `"yes": want "true" or "false"`)
}
