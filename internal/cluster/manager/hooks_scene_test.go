package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/webhooks"
)

// pod returns a pod with one container. list is both the requests and the
// limits of the container.
func (s *scene) pod(class string, list corev1.ResourceList) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: s.name + "-"}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
	if class != "" {
		p.Labels = map[string]string{kube.LabelQOSClass: class}
	}
	return p
}

func listOf(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// awaitTrust waits until the API server trusts the certificate of the webhooks.
func (s *scene) awaitTrust() {
	s.t.Helper()
	s.waitUntil("the API server reaches the webhooks", soon, func() bool {
		return s.client.Create(s.ctx, s.pod("BE", listOf("kubernetes.io/batch-cpu", "1k")), client.DryRunAll) == nil
	})
}

func (s *scene) refused(err error, want string) {
	s.t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		s.t.Errorf("got %v\nwant a refusal with %s", err, want)
	}
}

func TestWebhooksBoundWhatIsBE(t *testing.T) {
	s := newScene(t)
	s.start(s.webhooks)
	s.awaitTrust()

	be := s.pod("BE", listOf("cpu", "1500m", "memory", "2Gi"))
	s.must(s.client.Create(s.ctx, be))
	got := be.Spec.Containers[0].Resources.Limits
	if cpu, memory := got[kube.BatchCPU], got[kube.BatchMemory]; cpu.Value() != 1500 || memory.Value() != 2<<30 || len(got) != 2 {
		t.Errorf("the limits of the BE pod are %v", got)
	}
	if !strings.Contains(be.Annotations[kube.AnnotationExtended], `"kubernetes.io/batch-cpu":"1500"`) {
		t.Errorf("the BE pod has the annotations %v", be.Annotations)
	}
	s.refused(s.client.Create(s.ctx, s.pod("BE", listOf("cpu", "1", "kubernetes.io/batch-memory", "2Gi"))), "this container also has batch resources: want only one kind")
	s.refused(s.client.Create(s.ctx, s.pod("", listOf("kubernetes.io/batch-cpu", "1k"))), "batch resources are for class BE")
	s.refused(s.client.Create(s.ctx, s.pod("LSR", listOf("cpu", "1500m", "memory", "1Gi"))), "want a whole number")

	plain := s.pod("", listOf("cpu", "1"))
	s.must(s.client.Create(s.ctx, plain))
	if q := plain.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]; q.Value() != 1 || len(plain.Annotations) > 0 {
		t.Errorf("a pod of no class was changed: %v %v", plain.Spec.Containers[0].Resources, plain.Annotations)
	}
	relabel := func(p *corev1.Pod, key, value string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
		return s.client.Patch(s.ctx, p.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	s.refused(relabel(plain, kube.LabelQOSClass, "BE"), "none cannot become \"BE\" while the pod lives")
	s.refused(relabel(be, kube.LabelQOSClass, "LS"), "\"BE\" cannot become \"LS\" while the pod lives")
	s.must(relabel(be, "other", "label"))
	bad := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"koordinator.sh/cpuBurst":"{\"cpuBurstPercent\":-5}"}}}`))
	s.refused(s.client.Patch(s.ctx, plain.DeepCopy(), bad), "cpuBurstPercent")

	stated := s.pod("", listOf("cpu", "1"))
	stated.Annotations = map[string]string{kube.AnnotationObjective: `{"runQueueDelay":"5s"}`}
	s.refused(s.client.Create(s.ctx, stated), "metadata.annotations[tenon.sh/objective].runQueueDelay: 5s: want a duration from 10µs to 1s")
	restate := func(text string) error {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kube.AnnotationObjective, text)
		return s.client.Patch(s.ctx, plain.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	s.refused(restate(`{"p99":"5ms","port":80}`), "metadata.annotations[tenon.sh/objective].source: missing: want one of metrics, socket")
	s.must(restate(`{"runQueueDelay":"2ms"}`))

	s.must(s.client.Create(s.ctx, &configv1alpha1.ClusterColocationProfile{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: configv1alpha1.ClusterColocationProfileSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "spark"}}, QoSClass: "BE",
	}}))
	defer func() { s.must(s.client.DeleteAllOf(s.ctx, &configv1alpha1.ClusterColocationProfile{})) }()
	s.waitUntil("the profile holds", now, func() bool {
		p := s.pod("", listOf("cpu", "2", "memory", "1Gi"))
		p.Labels = map[string]string{"job": "spark"}
		s.must(s.client.Create(s.ctx, p, client.DryRunAll))
		q := p.Spec.Containers[0].Resources.Limits[kube.BatchCPU]
		return q.Value() == 2000 && p.Labels[kube.LabelQOSClass] == "BE"
	})
	forger := s.pod("", listOf("cpu", "2", "memory", "1Gi"))
	forger.Labels, forger.Annotations = map[string]string{"job": "spark"}, map[string]string{admission.AnnotationProfiles: ""}
	s.must(s.client.Create(s.ctx, forger, client.DryRunAll))
	if forger.Labels[kube.LabelQOSClass] != "BE" || forger.Annotations[admission.AnnotationProfiles] != s.name || forger.Annotations[admission.AnnotationSeal] == "" {
		t.Errorf("a pod with a forged annotation kept the profile away: %v %v", forger.Labels, forger.Annotations)
	}

	var m corev1.ConfigMap
	s.must(s.client.Get(s.ctx, s.config, &m))
	m.Data["colocation-config"] = `{"enable":true,"cpuReclaimThresholdPercent":-1}`
	s.refused(s.client.Update(s.ctx, &m), "colocation-config.cpuReclaimThresholdPercent: -1")
	s.must(s.client.Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "another"}, Data: map[string]string{"colocation-config": "x"}}))
}

// warned collects the warnings in the answers of the API server.
type warned []string

func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	*w = append(*w, text)
}

// bound creates a pod that demands own CPUs, and binds it to a node.
func (s *scene) bound(p *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	if p.Labels[kube.LabelQOSClass] == "" {
		p.Annotations = map[string]string{kube.AnnotationCPUSetScheduler: "true"}
	}
	s.must(s.client.Create(s.ctx, p))
	s.must(s.client.SubResource("binding").Create(s.ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: s.name}}))
	return p
}

// TestWarningsReachTheAuthor checks that the API server calls the webhooks for
// requests that cause a warning, and adds the warning to its answer.
func TestWarningsReachTheAuthor(t *testing.T) {
	s := newScene(t)
	s.start(s.webhooks)
	s.awaitTrust()
	s.node(s.name)
	four := listOf("cpu", "4")
	annotated, resized, lsr, sidecar := s.bound(s.pod("", four)), s.bound(s.pod("", four)), s.bound(s.pod("LSR", four)), s.pod("", four)
	sidecar.Annotations = map[string]string{kube.AnnotationCPUSetScheduler: "true"}
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "none", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: listOf("cpu", "100m")}}}
	merge := func(text string) client.Patch { return client.RawPatch(types.StrategicMergePatchType, []byte(text)) }
	settled := func(p *corev1.Pod) {
		t.Helper()
		s.waitUntil("the API server has the stored pod in its cache", 10*time.Second, func() bool {
			var stored, cached corev1.Pod
			s.must(
				s.client.Get(s.ctx, client.ObjectKeyFromObject(p), &stored),
				s.client.Get(s.ctx, client.ObjectKeyFromObject(p), &cached, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}),
			)
			return cached.ResourceVersion == stored.ResourceVersion
		})
	}

	resize := func(c client.Client, p *corev1.Pod, cpu string) error {
		return c.SubResource("resize").Patch(s.ctx, p, merge(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"`+cpu+`"}}}]}}`))
	}

	said := &warned{}
	rc := rest.CopyConfig(s.rc)
	rc.WarningHandlerWithContext = said
	author, err := client.New(rc, client.Options{Scheme: s.client.Scheme()})
	s.must(err)
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"a new pod whose sidecar requests CPU", func() error { return author.Create(s.ctx, sidecar) },
			`metadata.annotations[cpuset-scheduler]: the CPU request of sidecar "proxy" turns 4 own CPUs into seats`},
		{"a change of another annotation", func() error {
			return author.Patch(s.ctx, annotated, merge(`{"metadata":{"annotations":{"team":"web"}}}`))
		}, ""},
		{"the annotation is removed from a running pod", func() error {
			return author.Patch(s.ctx, annotated, merge(`{"metadata":{"annotations":{"cpuset-scheduler":null}}}`))
		}, "metadata.annotations[cpuset-scheduler]: the pod gives up its 4 own CPUs now and shares the CPUs that no pod owns"},
		{"a resize to a request below the limit", func() error { return resize(author, resized, "2") },
			"spec.containers.resources: the pod gives up its 4 own CPUs now and gets 4 seats instead, which it shares"},
		{"a resize of seats", func() error { return resize(author, resized, "1500m") }, ""},
		{"a resize of an LSR pod to a whole number", func() error { return resize(author, lsr, "3") }, ""},
		{"a resize of an LSR pod to a fraction", func() error { return resize(author, lsr, "1500m") },
			"spec.containers.resources: the pod gives up its 3 own CPUs now and shares the CPUs that no pod owns"},
	} {
		if strings.HasPrefix(c.name, "a resize") && s.minor() < 33 {
			continue
		}
		// The API server may first call the webhooks with the old pod of its cache, and
		// again with the stored one if that is newer. It returns the warnings of both.
		for _, p := range []*corev1.Pod{annotated, resized, lsr} {
			settled(p)
		}
		*said = nil
		s.must(c.do())
		if text := strings.Join(*said, "\n"); (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: the warnings are %q, want %q", c.name, text, c.want)
		}
	}
}

// TestWithTheManagerDownNothingStartsUnlimitedAsBE checks that, without a
// manager, the API server refuses BE pods and admits all others.
func TestWithTheManagerDownNothingStartsUnlimitedAsBE(t *testing.T) {
	s := newScene(t)
	var o Options
	s.webhooks(&o) // the API server calls the webhooks, and no manager answers
	s.refused(s.client.Create(s.ctx, s.pod("BE", listOf("cpu", "1"))), "failed calling webhook \"be.mutate.tenon.sh\"")
	unnamed := "failed calling webhook \"unnamed.mutate.tenon.sh\""
	s.refused(s.client.Create(s.ctx, s.pod("", listOf("kubernetes.io/batch-cpu", "1k"))), unnamed)
	s.refused(s.client.Create(s.ctx, s.pod("LS", listOf("alibabacloud.com/reclaimed-memory", "1Gi"))), unnamed)
	former := s.pod("", listOf("cpu", "1"))
	former.Annotations = map[string]string{kube.AnnotationACKQOSClass: "BE"}
	s.refused(s.client.Create(s.ctx, former), unnamed)
	initial := s.pod("", listOf("cpu", "1"))
	initial.Spec.InitContainers = s.pod("", listOf("kubernetes.io/batch-memory", "1Gi")).Spec.Containers
	initial.Spec.InitContainers[0].Name = "first"
	s.refused(s.client.Create(s.ctx, initial), unnamed)
	s.must(s.client.Create(s.ctx, s.pod("", listOf("cpu", "1"))), s.client.Create(s.ctx, s.pod("LS", listOf("cpu", "1"))))
	guarded := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-guarded", Labels: map[string]string{webhooks.LabelRequired: "true"}}}
	s.must(s.client.Create(s.ctx, guarded))
	missed := s.pod("", listOf("cpu", "1")) // a profile may make it BE
	missed.Namespace = guarded.Name
	s.refused(s.client.Create(s.ctx, missed), "failed calling webhook \"required.mutate.tenon.sh\"")
	plain := s.pod("", listOf("cpu", "1"))
	s.must(s.client.Create(s.ctx, plain))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"koordinator.sh/qosClass":"BE"}}}`))
	s.refused(s.client.Patch(s.ctx, plain.DeepCopy(), patch), "failed calling webhook \"class.validate.tenon.sh\"")
	s.must(s.client.Patch(s.ctx, plain.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`))))

	r := s.start(s.webhooks)
	s.awaitTrust()
	be := s.pod("BE", listOf("cpu", "1"))
	s.must(s.client.Create(s.ctx, be))
	r.end()
	s.refused(s.client.Create(s.ctx, s.pod("BE", listOf("cpu", "1"))), "failed calling webhook")
	s.must(s.client.Delete(s.ctx, be, client.GracePeriodSeconds(0)))
}

// TestCertificatesChangeUnderLoad creates pods one after the other while
// certificates and CAs are renewed several times. No call of a webhook may
// fail.
func TestCertificatesChangeUnderLoad(t *testing.T) {
	s := newScene(t)
	r := s.start(s.webhooks, func(o *Options) {
		o.Lifetimes = certificate.Lifetimes{CA: 18 * time.Second, Serving: 6 * time.Second, Settle: 2 * time.Second}
	})
	s.awaitTrust()
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	var calls, failed atomic.Int64
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				err := s.client.Create(s.ctx, s.pod("BE", listOf("cpu", "1")), client.DryRunAll)
				calls.Add(1)
				if err != nil && failed.Add(1) < 5 {
					t.Errorf("after %d calls: %v", calls.Load(), err)
				}
			}
		})
	}
	load.Wait()
	certificates, cas := r.log.count("serving with a new certificate"), r.log.count("made the next CA")
	t.Logf("%d calls in 30 s, %d failed, %d certificates, %d further CAs", calls.Load(), failed.Load(), certificates, cas)
	if certificates < 4 || cas < 2 {
		t.Errorf("too little was renewed: %d certificates, %d CAs", certificates, cas)
	}
}

// TestGarbageThroughTheWebhooksEndsNothing creates pods with random classes,
// priorities, amounts and annotations. The webhooks must either refuse a pod
// with a reason, or bound it.
func TestGarbageThroughTheWebhooksEndsNothing(t *testing.T) {
	s := newScene(t)
	r := s.start(s.webhooks)
	s.awaitTrust()
	rnd := rand.New(rand.NewPCG(41, 42))
	let, refused, unread := 0, 0, 0
	for range 500 {
		p := s.garbage(rnd)
		sent, _ := json.Marshal(p)
		err := s.client.Create(s.ctx, p, client.DryRunAll)
		switch {
		case err == nil:
			let++
			if faults := admission.Unbounded(p, false, nil); len(faults) > 0 {
				t.Errorf("a BE pod without an upper bound is admitted: %v\n%s", faults, sent)
			}
		case strings.Contains(err.Error(), "denied the request: "):
			refused++
			if message := err.Error()[strings.Index(err.Error(), "denied the request: ")+20:]; len(message) < 20 {
				t.Errorf("a refusal without a reason: %q", message)
			}
		case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err):
			unread++ // the API server itself refuses it
		default:
			t.Errorf("%v\n%s", err, sent)
		}
	}
	t.Logf("of 500 pods %d were admitted, %d refused by the webhooks, %d by the API server", let, refused, unread)
	if let < 20 || refused < 50 {
		t.Errorf("want each result often enough")
	}
	if n := r.log.count("panic"); n > 0 {
		t.Errorf("%d panics", n)
	}
}

func (s *scene) garbage(rnd *rand.Rand) *corev1.Pod {
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	amount := func() string {
		return one("1", "1", "1k", "1k", "2Gi", "2Gi", "1500", "1500", "64Mi", "64Mi", "0", "500m", "-1", "7P", "0.5", "9223372036854775807", "1e3")
	}
	list := func() corev1.ResourceList {
		l := corev1.ResourceList{}
		for range rnd.IntN(3) {
			name := one("cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "kubernetes.io/mid-cpu", "koordinator.sh/batch-cpu", "example.com/gpu", "alibabacloud.com/reclaimed-cpu")
			l[corev1.ResourceName(name)] = resource.MustParse(amount())
		}
		return l
	}
	p := s.pod(one("BE", "BE", "BE", "LS", "LSR", "LSE", "SYSTEM", "best", ""), nil)
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	for range rnd.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", len(p.Spec.Containers)), Image: "none"})
	}
	for range rnd.IntN(2) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: fmt.Sprintf("i%d", rnd.IntN(4)), Image: "none"})
	}
	fill := func(all []corev1.Container) {
		for i := range all {
			all[i].Resources.Requests, all[i].Resources.Limits = list(), list()
			if rnd.IntN(8) > 0 {
				all[i].Resources.Requests = all[i].Resources.Limits.DeepCopy()
			}
		}
	}
	fill(p.Spec.Containers)
	fill(p.Spec.InitContainers)
	note := func(key string) {
		p.Annotations[key] = one("", "{}", "null", "[]", `{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1"}}}}`, `{"enable":true}`, `{"cpuBurstPercent":1e9}`,
			"true", strings.Repeat("[", 3000), `{"policy":"auto"}`, "\x00", "cpu:kubernetes.io/batch-cpu", "-5", `{"a":{"b":{}}}`)
	}
	p.Annotations = map[string]string{}
	for range rnd.IntN(4) {
		note(one(kube.AnnotationExtended, kube.AnnotationCPUBurst, kube.AnnotationCPUQOS, kube.AnnotationMemoryQOS, kube.AnnotationResctrl, kube.AnnotationEvictionPriority,
			kube.AnnotationACKQOSClass, admission.AnnotationReplace, configv1alpha1.SkipUpdateResources, kube.AnnotationBlkIOQOS))
	}
	if rnd.IntN(4) == 0 {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[one(kube.LabelPriorityClass, kube.LabelSubPriority)] = one("koord-prod", "koord-batch", "koord-free", "7", "x", "")
	}
	return p
}
