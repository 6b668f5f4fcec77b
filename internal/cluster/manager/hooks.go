package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	rules "tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
)

// hooks answers the API server. It reads the inputs of a decision, and returns
// the decision of package admission.
type hooks struct {
	client, live client.Reader // client reads from the cache; live reads from the API server what the cache lacks
	config       client.ObjectKey
	home         string // the namespace of the manager
	settings     interface{ Cluster() *config.Cluster }
	scheduler    string            // the name of the scheduler that chooses CPUs; empty: none
	names        map[string]string // Options.SchedulerNames
	permit       *opener.Permit    // the right to open gates; nil: a dry run opens none
	cert         *certificate.Serving
	log          *slog.Logger
}

// mutatePod answers with the changes that package admission makes to a pod.
func (h *hooks) mutatePod(ctx context.Context, req admission.Request) admission.Response {
	pod, err := quantity.ParsePod(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the pod: %w", err))
	}
	pod.Namespace = cmp.Or(pod.Namespace, req.Namespace)
	asked := rules.Request{Pod: &pod, PriorityClasses: map[string]schedulingv1.PriorityClass{}, Scheduler: h.scheduler, SchedulerNames: h.names, Draw: rand.Float64, Seal: h.cert.Seal, Now: time.Now(), User: req.UserInfo.Username, ColocationOff: h.colocationOff(ctx)}
	if n, err := h.namespace(ctx, req.Namespace); err == nil {
		asked.Namespace = n
	}
	var profiles configv1alpha1.ClusterColocationProfileList
	var classes schedulingv1.PriorityClassList
	for _, list := range []client.ObjectList{&profiles, &classes} {
		if err := h.client.List(ctx, list); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("look up what the pod depends on: %w", err))
		}
	}
	asked.Profiles, asked.Ranges = profiles.Items, h.ranges(ctx, req.Namespace)
	for _, c := range classes.Items {
		asked.PriorityClasses[c.Name] = c
	}
	asked.Gate = func() bool { return h.gates(ctx) }
	changed, verdict := rules.Mutate(asked)
	if !verdict.Allowed() {
		return h.answer("pod", req, verdict)
	}
	// Both values were decoded into the Go types. So the patch does not touch
	// fields that these types lack.
	before, err := json.Marshal(&pod)
	if err == nil {
		var after []byte
		if after, err = json.Marshal(changed); err == nil {
			return admission.PatchResponseFromRaw(before, after).WithWarnings(verdict.Texts()...)
		}
	}
	return admission.Errored(http.StatusInternalServerError, fmt.Errorf("print the pod: %w", err))
}

// gates reports whether new batch pods get a gate. Without the right to open it, they
// would wait for ever. A manager that has just started may lack settings; then pods get
// none.
func (h *hooks) gates(ctx context.Context) bool {
	c := h.settings.Cluster()
	return c != nil && c.GatesBatch() && h.permit != nil && h.permit.Granted(ctx)
}

// colocationOff reports whether no node has batch resources. The settings tell this. A
// manager that has just started may lack settings; then the status of the nodes tells it.
func (h *hooks) colocationOff(ctx context.Context) bool {
	if c := h.settings.Cluster(); c != nil {
		return !c.Colocates()
	}
	var all corev1.NodeList
	if err := h.client.List(ctx, &all); err != nil {
		return false
	}
	return !slices.ContainsFunc(all.Items, func(n corev1.Node) bool { return batchAmount(n.Status.Allocatable, cpu).Known() })
}

// ranges returns the LimitRanges of a namespace, or none if the cache lacks them.
func (h *hooks) ranges(ctx context.Context, namespace string) rules.Ranges {
	var all corev1.LimitRangeList
	if err := h.client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil
	}
	return all.Items
}

// validatePod checks a pod after all mutating webhooks have changed it. The
// object of the subresource pods/resize is the whole pod.
func (h *hooks) validatePod(ctx context.Context, req admission.Request) admission.Response {
	pod, err := quantity.ParsePod(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the pod: %w", err))
	}
	n, err := h.namespace(ctx, req.Namespace)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("look up what the pods of namespace %s may ask for: %w", req.Namespace, err))
	}
	in := tenant.Namespace{Name: req.Namespace, Labels: n.Labels, Home: h.home}
	if c := h.settings.Cluster(); c != nil { // else the agents alone enforce the limits
		in.Limits = c.Objectives()
	}
	if req.Operation != admissionv1.Update {
		if v := rules.ValidateMirror(&pod, req.UserInfo.Groups); !v.Allowed() {
			return h.answer("pod", req, v)
		}
		v := rules.ValidateCreate(&pod, in, h.colocationOff(ctx), h.ranges(ctx, req.Namespace))
		if kube.Class(&pod) == node.BE && h.gates(ctx) {
			beyond, err := rules.ValidateTerms(&pod, n.Annotations, func() (share.Amount, error) { return opener.Used(ctx, h.live, req.Namespace) })
			if err != nil {
				return admission.Errored(http.StatusInternalServerError, err)
			}
			v.Refusals = append(v.Refusals, beyond.Refusals...)
		}
		return h.answer("pod", req, v)
	}
	old, err := quantity.ParsePod(req.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the pod as it was: %w", err))
	}
	return h.answer("pod", req, rules.ValidateUpdate(&old, &pod, in))
}

// namespace reads a namespace. The cache may lack it: it was probably created
// just now, together with its first pods.
func (h *hooks) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var n corev1.Namespace
	err := h.client.Get(ctx, client.ObjectKey{Name: name}, &n)
	if apierrors.IsNotFound(err) {
		err = h.live.Get(ctx, client.ObjectKey{Name: name}, &n)
	}
	return &n, err
}

// validateNamespace checks the labels and the annotation of a namespace that say what
// its pods may ask for.
func (h *hooks) validateNamespace(ctx context.Context, req admission.Request) admission.Response {
	var n, old metav1.PartialObjectMetadata
	err := json.Unmarshal(req.Object.Raw, &n)
	if err == nil && req.Operation == admissionv1.Update {
		err = json.Unmarshal(req.OldObject.Raw, &old)
	}
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the namespace: %w", err))
	}
	return h.answer("namespace", req, rules.ValidateNamespace(old.ObjectMeta, n.ObjectMeta, h.gates(ctx)))
}

// validateQuota warns about resources that Kubernetes does not count.
func (h *hooks) validateQuota(_ context.Context, req admission.Request) admission.Response {
	var q corev1.ResourceQuota
	if err := json.Unmarshal(req.Object.Raw, &q); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the ResourceQuota: %w", err))
	}
	return h.answer("resourcequota", req, rules.ValidateQuota(&q))
}

// validateConfig checks a ConfigMap if Tenon reads it.
func (h *hooks) validateConfig(_ context.Context, req admission.Request) admission.Response {
	var m corev1.ConfigMap
	if err := json.Unmarshal(req.Object.Raw, &m); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the ConfigMap: %w", err))
	}
	switch {
	case req.Namespace == h.config.Namespace && req.Name == h.config.Name:
		return h.answer("configmap", req, rules.ValidateConfigMap(m.Data))
	case req.Name == kube.PodConfigMap:
		return h.answer("configmap", req, rules.ValidatePodConfigMap(m.Data))
	}
	return admission.Allowed("")
}

// validateProfile checks a ClusterColocationProfile.
func (h *hooks) validateProfile(ctx context.Context, req admission.Request) admission.Response {
	var p configv1alpha1.ClusterColocationProfile
	if err := json.Unmarshal(req.Object.Raw, &p); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the profile: %w", err))
	}
	var classes schedulingv1.PriorityClassList
	if err := h.client.List(ctx, &classes); err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("look up the priority classes: %w", err))
	}
	byName := map[string]schedulingv1.PriorityClass{}
	for _, c := range classes.Items {
		byName[c.Name] = c
	}
	return h.answer("profile", req, rules.ValidateProfile(&p, byName))
}

// answer converts a verdict to an answer for the API server.
func (h *hooks) answer(what string, req admission.Request, v rules.Verdict) admission.Response {
	if !v.Allowed() {
		h.log.Info("refused", "kind", what, "namespace", req.Namespace, "name", req.Name, "operation", req.Operation, "reason", v.Message())
		return admission.Denied(v.Message()).WithWarnings(v.Texts()...)
	}
	return admission.Allowed("").WithWarnings(v.Texts()...)
}
