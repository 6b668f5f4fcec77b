package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"tenon.sh/tenon/api/v1alpha1"
)

// ErrAbsent means that the object, or its kind, does not exist.
var ErrAbsent = errors.New("no such object")

// ErrBudget means that a PodDisruptionBudget does not allow an eviction now.
var ErrBudget = errors.New("a PodDisruptionBudget does not allow it now")

// Apply sets fields of an object by server-side apply. path is absolute, such
// as /apis/tenon.sh/v1alpha1/nodereports/a/status. If another field manager
// owns a field, Apply takes the field over.
func (c *Client) Apply(ctx context.Context, path, owner string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	err = c.rest.Patch(types.ApplyYAMLPatchType).AbsPath(path).Param("fieldManager", owner).Param("force", "true").
		Timeout(patience).MaxRetries(0).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("apply %s: %w: %w", path, ErrAbsent, err)
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	return nil
}

// ErrDenied means that the API server does not know the client (status 401), or
// that the client lacks the permission (403).
var ErrDenied = errors.New("denied")

// Denied reports whether err is an answer of the API server with status 401 or
// 403.
func Denied(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// Leaves reports whether the pod of a DaemonSet must leave a node, because the
// DaemonSet is deleted or does not select the node any more, or because its pods
// do not tolerate a NoExecute taint of the node. ErrDenied means that the client
// may not read the DaemonSet or the node.
func (c *Client) Leaves(ctx context.Context, namespace, name, node string) (bool, error) {
	var set struct {
		metav1.PartialObjectMetadata
		Spec struct {
			Template struct {
				Spec corev1.PodSpec `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	what := fmt.Sprintf("whether DaemonSet %s/%s is to stay on node %s", namespace, name, node)
	err := c.get(ctx, fmt.Sprintf("/apis/apps/v1/namespaces/%s/daemonsets/%s", namespace, name), &set)
	switch {
	case errors.Is(err, ErrAbsent):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("ask %s: %w", what, err)
	case set.DeletionTimestamp != nil:
		return true, nil
	}
	var n corev1.Node
	if err := c.get(ctx, "/api/v1/nodes/"+node, &n); err != nil {
		return false, fmt.Errorf("ask %s: %w", what, err)
	}
	keeps, err := keepsDaemonPod(&n, &set.Spec.Template.Spec)
	if err != nil {
		return false, fmt.Errorf("find out %s: %w", what, err)
	}
	return !keeps, nil
}

// keepsDaemonPod reports whether a pod of a DaemonSet may go on running on a
// node (k8s.io/kubernetes/pkg/controller/daemon: NodeShouldRunDaemonPod). spec is
// that of the template of the DaemonSet.
func keepsDaemonPod(n *corev1.Node, spec *corev1.PodSpec) (bool, error) {
	selects, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}).Match(n)
	if err != nil || !selects {
		return false, err
	}
	// The controller of DaemonSets adds the tolerations of these two taints.
	tolerations := slices.Clone(spec.Tolerations)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	}
	ends := func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	_, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, tolerations, ends, true)
	return !untolerated, nil
}

// Ends reports whether a namespace is being deleted or is already gone.
func (c *Client) Ends(ctx context.Context, namespace string) (bool, error) {
	var n metav1.PartialObjectMetadata
	switch err := c.get(ctx, "/api/v1/namespaces/"+namespace, &n); {
	case errors.Is(err, ErrAbsent):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("ask whether namespace %s is to stay: %w", namespace, err)
	}
	return n.DeletionTimestamp != nil, nil
}

// Queried returns what the manager has read from Prometheus for the services of a
// node. It returns nil if the manager has written nothing. The API server answers
// from its memory, so the answer may be a little old.
func (c *Client) Queried(ctx context.Context, node string) (*v1alpha1.Queried, error) {
	var report struct {
		Status struct {
			Queried *v1alpha1.Queried `json:"queried"`
		} `json:"status"`
	}
	path := fmt.Sprintf("/apis/%s/nodereports/%s", v1alpha1.GroupVersion, node)
	if err := c.get(ctx, path, &report, "resourceVersion", "0"); err != nil && !errors.Is(err, ErrAbsent) {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return report.Status.Queried, nil
}

// get reads an object at an absolute path, with parameters as names and values.
func (c *Client) get(ctx context.Context, path string, into any, parameters ...string) error {
	request := c.rest.Get().AbsPath(path)
	for i := 0; i+1 < len(parameters); i += 2 {
		request = request.Param(parameters[i], parameters[i+1])
	}
	text, err := request.SetHeader("Accept", "application/json").Timeout(patience).MaxRetries(0).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	case Denied(err):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case err != nil:
		return err
	}
	return json.Unmarshal(text, into)
}

// A PodName identifies one pod. The UID distinguishes the pod from a later pod
// with the same name.
type PodName struct {
	Namespace, Name string
	UID             types.UID
}

// Evict requests the eviction of a pod, with the pod's grace period and
// disruption budget. ErrBudget means that the budget forbids the eviction now.
// If the pod does not exist any more, the result is nil. A conflict is an
// error, because it has several possible causes: another pod has the name now,
// a webhook refused, or the status of the budget changed at the same time.
func (c *Client) Evict(ctx context.Context, p PodName) error {
	eviction := policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	}
	body, err := json.Marshal(eviction)
	if err != nil {
		return err
	}
	err = c.rest.Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").
		SetHeader("Content-Type", "application/json").Timeout(evictPatience).MaxRetries(0).Body(body).Do(ctx).Error()
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsTooManyRequests(err) && disrupts(err):
		return fmt.Errorf("evict pod %s/%s: %w: %w", p.Namespace, p.Name, ErrBudget, err)
	}
	return fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err)
}

// disrupts reports whether a disruption budget refused the eviction. Status 429
// alone does not prove this, because a busy server also answers with it.
func disrupts(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusTooManyRequests {
		return false
	}
	return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)
}

// An Occurrence is the content of an Event about a pod.
type Occurrence struct {
	Pod     PodName
	Node    string
	Warning bool
	Reason  string // one word, such as Evicted
	Message string
	At      time.Time
}

// maxMessage is the maximum length of the message of an Event, in bytes.
const maxMessage = 1024

// Tell creates an Event from an occurrence.
func (c *Client) Tell(ctx context.Context, o Occurrence) error {
	at, kind := metav1.NewTime(o.At), corev1.EventTypeNormal
	if o.Warning {
		kind = corev1.EventTypeWarning
	}
	event := corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Pod.Namespace, Name: fmt.Sprintf("%.200s.%x", o.Pod.Name, o.At.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: o.Pod.Namespace, Name: o.Pod.Name, UID: o.Pod.UID,
		},
		Type: kind, Reason: o.Reason, Message: clip(o.Message, maxMessage), Count: 1,
		FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: "tenond", Host: o.Node},
	}
	body, err := json.Marshal(event)
	if err != nil {
		return err
	}
	err = c.rest.Post().Namespace(o.Pod.Namespace).Resource("events").SetHeader("Content-Type", "application/json").
		Timeout(patience).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create event %s for pod %s/%s: %w", o.Reason, o.Pod.Namespace, o.Pod.Name, err)
	}
	return nil
}

// clip cuts a text to at most n bytes. It does not cut inside a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
