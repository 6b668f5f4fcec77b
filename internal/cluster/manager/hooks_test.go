package manager

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/manager/settings"
	"tenon.sh/tenon/internal/config"
)

// spaces is a client of a cluster that has one profile and at most one
// namespace.
type spaces struct {
	client.Reader
	namespace string // has the label team: batch
	asked     int
}

func (s *spaces) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	s.asked++
	if key.Name != s.namespace {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	to.SetName(key.Name)
	to.SetLabels(map[string]string{"team": "batch"})
	return nil
}

func (s *spaces) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	if list, is := to.(*configv1alpha1.ClusterColocationProfileList); is {
		list.Items = []configv1alpha1.ClusterColocationProfile{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       configv1alpha1.ClusterColocationProfileSpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "batch"}}, QoSClass: "BE"},
		}}
	}
	return nil
}

// TestTheFirstPodsOfANamespaceHaveItsProfiles creates a pod in a namespace that
// the cache does not have yet. Profiles must apply to the pod.
func TestTheFirstPodsOfANamespaceHaveItsProfiles(t *testing.T) {
	pod, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		cached, live string
		be           bool
		asked        int // number of reads from the API server
	}{
		"the cache knows it":     {"new", "new", true, 0},
		"it was just made":       {"", "new", true, 1},
		"it is not there at all": {"", "", false, 1},
	} {
		live := &spaces{namespace: x.live}
		h := &hooks{client: &spaces{namespace: x.cached}, live: live, settings: &settings.Settings{}, cert: &certificate.Serving{}, log: slog.New(slog.DiscardHandler)}
		answer := h.mutatePod(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "new", Object: runtime.RawExtension{Raw: pod}}})
		patch, err := json.Marshal(answer.Patches)
		if err != nil {
			t.Fatal(err)
		}
		if be := strings.Contains(string(patch), `"BE"`); !answer.Allowed || be != x.be || live.asked != x.asked {
			t.Errorf("%s: BE %v, asked %d times: %s %v", name, be, live.asked, patch, answer.Result)
		}
	}
}

// TestColocationIsOffUntilSettingsOrNodesShowIt checks how the webhooks decide
// whether to rename the requests of a BE pod. The settings decide. While the
// manager has not read them, the batch resources of the nodes decide.
func TestColocationIsOffUntilSettingsOrNodesShowIt(t *testing.T) {
	pod, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job", Labels: map[string]string{"koordinator.sh/qosClass": "BE"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		config     map[string]string // nil: not read yet
		offered    bool              // a node has batch resources
		translated bool
	}{
		"enabled":                                      {map[string]string{"colocation-config": `{"enable": true}`}, false, true},
		"only CPU QoS is configured":                   {map[string]string{"resource-qos-config": `{"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true}}}}`}, false, false},
		"a node entry cannot enable it alone":          {map[string]string{"colocation-config": `{"nodeConfigs": [{"nodeSelector": {"matchLabels": {}}, "enable": true}]}`}, false, false},
		"no settings yet, and no node offers any":      {nil, false, false},
		"no settings yet, and the nodes have amounts":  {nil, true, true},
		"disabled, and the amounts are still standing": {map[string]string{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s fixed
			if x.config != nil {
				c, faults := config.ParseConfigMap(x.config)
				if len(faults) > 0 {
					t.Fatal(faults)
				}
				s.is = &c
			}
			h := &hooks{client: &offers{x.offered}, live: &offers{}, settings: s, cert: &certificate.Serving{}, log: slog.New(slog.DiscardHandler)}
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "n", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: pod}}}
			answer := h.mutatePod(t.Context(), req)
			patch, _ := json.Marshal(answer.Patches)
			if translated := strings.Contains(string(patch), "batch-cpu"); !answer.Allowed || translated != x.translated || len(answer.Warnings) == 0 && !x.translated {
				t.Errorf("allowed %v, translated %v, warnings %q: %s", answer.Allowed, translated, answer.Warnings, patch)
			}
			if judged := h.validatePod(t.Context(), req); judged.Allowed == x.translated {
				t.Errorf("the pod as sent is allowed %v: %v", judged.Allowed, judged.Result)
			}
		})
	}
}

// fixed are settings that do not change.
type fixed struct{ is *config.Cluster }

func (f fixed) Cluster() *config.Cluster { return f.is }

// TestAPodWithALargeExponentIsRefused sends pods with quantities that Kubernetes
// would compare or read for hours. The API server compares the first one only
// after the mutating webhooks. Any process of the cluster may send the second one.
func TestAPodWithALargeExponentIsRefused(t *testing.T) {
	h := &hooks{client: &offers{true}, live: &offers{}, settings: &settings.Settings{}, cert: &certificate.Serving{}, log: slog.New(slog.DiscardHandler)}
	for _, q := range []string{"1e2147483647", "1e-2147483647"} {
		bad := runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"job","labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"` + q + `"}}}]}}`)}
		good := runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"job"}}`)}
		answers := make(chan admission.Response, 4)
		go func() {
			request := func(now, old runtime.RawExtension, op admissionv1.Operation) admission.Request {
				return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "n", Operation: op, Object: now, OldObject: old}}
			}
			answers <- h.mutatePod(t.Context(), request(bad, runtime.RawExtension{}, admissionv1.Create))
			answers <- h.validatePod(t.Context(), request(bad, runtime.RawExtension{}, admissionv1.Create))
			answers <- h.validatePod(t.Context(), request(bad, good, admissionv1.Update))
			answers <- h.validatePod(t.Context(), request(good, bad, admissionv1.Update))
		}()
		for range 4 {
			select {
			case a := <-answers:
				if a.Allowed || !strings.Contains(a.Result.Message, `spec.containers[main].resources.limits[cpu]: "`+q+`": want a quantity`) {
					t.Errorf("%s: allowed %v: %v", q, a.Allowed, a.Result)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: no answer", q)
			}
		}
	}
}

// TestTheWebhooksReadTheLimitRangesOfTheNamespace creates a BE pod with an
// amount that a LimitRange of its namespace imposes.
func TestTheWebhooksReadTheLimitRangesOfTheNamespace(t *testing.T) {
	both := corev1.ResourceList{"cpu": resource.MustParse("100m"), "kubernetes.io/batch-cpu": resource.MustParse("1k")}
	pod, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job", Labels: map[string]string{"koordinator.sh/qosClass": "BE"}, Annotations: map[string]string{
		"kubernetes.io/limit-ranger":                 "LimitRanger plugin set: cpu request for container main",
		kube.AnnotationScaleUpDelay:                  "8760h",
		"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1k"},"limits":{"kubernetes.io/batch-cpu":"1k"}}}}`,
	}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Requests: both, Limits: corev1.ResourceList{"kubernetes.io/batch-cpu": both["kubernetes.io/batch-cpu"]}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for namespace, kept := range map[string]bool{"ranged": true, "other": false} {
		h := &hooks{client: &offers{batch: true}, live: &offers{}, settings: &settings.Settings{}, cert: &certificate.Serving{}, log: slog.New(slog.DiscardHandler)}
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: namespace, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: pod}}}
		if answer := h.mutatePod(t.Context(), req); !answer.Allowed || len(answer.Patches) == 0 != kept {
			t.Errorf("%s: patches %v, %v", namespace, answer.Patches, answer.Result)
		}
		if judged := h.validatePod(t.Context(), req); judged.Allowed != kept {
			t.Errorf("%s: allowed %v: %v", namespace, judged.Allowed, judged.Result)
		}
	}
}

// offers is a client of a cluster with one node. batch means that the node has
// batch resources.
type offers struct{ batch bool }

func (offers) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	to.SetName(key.Name)
	return nil
}

func (o offers) List(_ context.Context, to client.ObjectList, options ...client.ListOption) error {
	if list, is := to.(*corev1.LimitRangeList); is && slices.Contains(options, client.ListOption(client.InNamespace("ranged"))) {
		cpu := corev1.ResourceList{"cpu": resource.MustParse("100m")}
		list.Items = []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Min: cpu, DefaultRequest: cpu}}}}}
	}
	if list, is := to.(*corev1.NodeList); is {
		list.Items = make([]corev1.Node, 1)
		if o.batch {
			list.Items[0].Status.Allocatable = corev1.ResourceList{"kubernetes.io/batch-cpu": resource.MustParse("1k")}
		}
	}
	return nil
}

// TestTheWebhookKnowsTheShortestObjective creates a pod whose objective is shorter than
// the ConfigMap allows. Without settings the agents alone enforce the limit.
func TestTheWebhookKnowsTheShortestObjective(t *testing.T) {
	p := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}}}
	p.Name, p.Labels, p.Annotations = "web", map[string]string{"koordinator.sh/qosClass": "LS"}, map[string]string{"tenon.sh/objective": `{"runQueueDelay": "1ms"}`}
	pod, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	limited, faults := config.ParseConfigMap(map[string]string{"objective-config": `{"leastRunQueueDelay": "2ms"}`})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	const refused = "metadata.annotations[tenon.sh/objective].runQueueDelay: 1ms: want 2ms or more (leastRunQueueDelay in objective-config)"
	for want, cluster := range map[string]*config.Cluster{"": nil, refused: &limited} {
		h := &hooks{client: &spaces{namespace: "shop"}, live: &spaces{}, settings: fixed{cluster}, cert: &certificate.Serving{}, log: slog.New(slog.DiscardHandler)}
		answer := h.validatePod(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "shop", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: pod}}})
		if answer.Allowed != (want == "") || !answer.Allowed && !strings.Contains(answer.Result.Message, want) {
			t.Errorf("%+v, want %q", answer, want)
		}
	}
}
